"""octavo requests and octavo explain: who is being served, and why one of them waits."""

import argparse

from octavo.v1 import admin_pb2 as pb
from rich.console import Console
from rich.table import Table
from rich.text import Text

from octavo_client.verbs import options
from octavo_client.verbs.cells import cell


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verbs to the command line."""
    parser = verbs.add_parser("requests", help="list the requests alive", description="Lists the requests alive.")
    options.add_server(parser)
    parser.set_defaults(run=requests)
    parser = verbs.add_parser(
        "explain",
        help="say why a request waits",
        description="Says in a sentence with numbers why a request waits, was preempted, or what it is doing.",
    )
    parser.add_argument("request", metavar="ID", help="the request_id its client gave it, or the scheduler's own id")
    options.add_server(parser)
    parser.set_defaults(run=explain)


def requests(args: argparse.Namespace) -> int:
    """Prints a line for each branch of each request."""
    with options.open_client(args) as client:
        alive = client.list_requests(timeout=args.timeout)
    table = Table(box=None)
    for title in ("request", "tenant", "age", "prompt", "state", "worker", "answer", "computed", "pages", "preempted"):
        table.add_column(title, no_wrap=True)
    for request in alive:
        for branch in request.branches:
            table.add_row(*_row(request, branch))
    Console().print(table if alive else "no request is alive")
    return 0


def _row(request: pb.RequestStatus, branch: pb.BranchStatus) -> tuple[Text | str, ...]:
    name = request.request_id if len(request.branches) == 1 else f"{request.request_id} /{branch.branch}"
    return (
        cell(name),
        cell(request.tenant),
        f"{request.age_seconds:.1f} s",
        str(request.prompt_tokens),
        pb.BranchState.Name(branch.state).removeprefix("BRANCH_STATE_").lower(),
        cell(branch.worker_id),
        str(branch.answer_tokens),
        str(branch.computed_tokens),
        str(branch.device_pages + branch.host_pages),
        str(request.preemptions),
    )


def explain(args: argparse.Namespace) -> int:
    """Prints a sentence for each request of that name; 1 when none is alive."""
    with options.open_client(args) as client:
        explanations = client.explain(args.request, timeout=args.timeout)
    for explanation in explanations:
        name = args.request if len(explanations) == 1 else explanation.id
        for line in explanation.text.splitlines():
            print(f"{name}: {line}")
    return 0 if any(explanation.id for explanation in explanations) else 1
