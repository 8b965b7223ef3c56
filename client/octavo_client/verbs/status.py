"""octavo status: what workers, pages and requests of a running server are doing."""

import argparse

from google.protobuf.json_format import MessageToJson
from octavo.v1 import admin_pb2 as pb
from rich.console import Console
from rich.table import Table

from octavo_client.verbs import options

WIDE = 160
"""Columns where nobody says how many there are."""
LEGEND = "pages: held/usable; filled: share of the token slots in held pages that hold a token"


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser("status", help="show workers, pages and requests", description="Shows a running server.")
    parser.add_argument("--json", action="store_true", help="print the whole status as JSON")
    options.add_server(parser)
    parser.set_defaults(run=status)


def status(args: argparse.Namespace) -> int:
    """Prints the status."""
    with options.open_client(args) as client:
        answer = client.status(timeout=args.timeout)
    if args.json:
        print(MessageToJson(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))
        return 0
    show(answer)
    return 0


def show(answer: pb.GetStatusResponse) -> None:
    """Prints a line about requests and a table of the workers."""
    console, counters = Console(), answer.counters
    if not console.is_terminal:
        console = Console(width=WIDE)
    console.print(
        f"{answer.model}: up {answer.uptime_seconds:.0f} s, {answer.live_requests} requests alive, "
        f"{answer.waiting} sequences waiting; {counters.ended} ended, {counters.cancelled} of them cancelled, "
        f"{counters.generated_tokens} tokens generated",
        highlight=False,
        markup=False,
    )
    console.print(_table(answer))
    console.print(LEGEND, style="dim italic", highlight=False)


def _table(answer: pb.GetStatusResponse) -> Table:
    table = Table(box=None)
    for title in ("worker", "state", "kernels", "run", "swap", "pages", "cached", "peak", "host", "filled"):
        table.add_column(title, no_wrap=True)
    for worker in answer.workers:
        table.add_row(
            worker.worker_id,
            pb.WorkerState.Name(worker.state).removeprefix("WORKER_STATE_").lower(),
            worker.kernels,
            str(worker.running),
            str(worker.swapped),
            f"{worker.device.held}/{worker.device.total}",
            str(worker.device.cached),
            str(worker.device.peak_held),
            f"{worker.host.held}/{worker.host.total}",
            f"{worker.slot_utilisation:.1%}",
        )
    return table
