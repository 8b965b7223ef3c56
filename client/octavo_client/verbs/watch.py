"""octavo watch: a line about a running server every second or so."""

import argparse
from collections.abc import Iterator
from itertools import islice, pairwise

from octavo.v1 import admin_pb2 as pb

from octavo_client.verbs import options

TITLES = f"{'up':>9} {'alive':>6} {'waiting':>8} {'running':>8} {'tokens/s':>9} {'pages held':>13} {'preempted':>10}"


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser(
        "watch",
        help="print a line of status every second",
        description="Prints a line of what a running server is doing, again and again, until Ctrl-C.",
    )
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="default: %(default)s")
    parser.add_argument("--lines", type=int, metavar="N", help="end after so many")
    options.add_server(parser)
    parser.set_defaults(run=watch)


def watch(args: argparse.Namespace) -> int:
    """Prints lines until it is interrupted, or as many as were asked for."""
    with options.open_client(args) as client:
        print(TITLES)
        for line in islice(_lines(client.watch_status(args.interval, timeout=args.timeout)), args.lines):
            print(line, flush=True)
    return 0


def _lines(statuses: Iterator[pb.GetStatusResponse]) -> Iterator[str]:
    """One for each status but the first: rates need two."""
    for before, now in pairwise(statuses):
        seconds = now.uptime_seconds - before.uptime_seconds
        tokens = (now.counters.generated_tokens - before.counters.generated_tokens) / seconds
        preempted = now.counters.drops + now.counters.swaps - before.counters.drops - before.counters.swaps
        running = sum(worker.running for worker in now.workers)
        held, total = (sum(getattr(worker.device, name) for worker in now.workers) for name in ("held", "total"))
        yield (
            f"{now.uptime_seconds:8.0f}s {now.live_requests:6} {now.waiting:8} {running:8} {tokens:9.1f} "
            f"{f'{held}/{total}':>13} {preempted:10}"
        )
