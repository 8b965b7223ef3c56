"""octavo flush, octavo drain, octavo resume and octavo abort: orders to a running scheduler."""

import argparse

from octavo_client.verbs import options


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verbs to the command line."""
    parser = verbs.add_parser("flush", help="empty the prefix cache", description="Forgets all cached prefixes.")
    options.add_server(parser)
    parser.set_defaults(run=flush)
    parser = verbs.add_parser(
        "drain", help="give a worker no new requests", description="Gives a worker no new requests; those it has go on."
    )
    parser.add_argument("worker", metavar="WORKER", help="its id, as octavo status shows it")
    options.add_server(parser)
    parser.set_defaults(run=drain)
    parser = verbs.add_parser(
        "resume", help="give a drained worker requests again", description="Gives a draining worker new requests again."
    )
    parser.add_argument("worker", metavar="WORKER", help="its id, as octavo status shows it")
    options.add_server(parser)
    parser.set_defaults(run=resume)
    parser = verbs.add_parser(
        "abort",
        help="end requests",
        description="Ends requests: their answers end after what they have, and what they hold is free.",
    )
    parser.add_argument("requests", metavar="ID", nargs="*", help="a request_id or an id, as octavo requests shows it")
    parser.add_argument("--tenant", metavar="NAME", help='all requests of this tenant; "": those without one')
    options.add_server(parser)
    parser.set_defaults(run=abort)


def flush(args: argparse.Namespace) -> int:
    """Empties the prefix cache."""
    with options.open_client(args) as client:
        num_pages = client.flush(timeout=args.timeout)
    print(f"flushed: {num_pages} cached pages are free")
    return 0


def drain(args: argparse.Namespace) -> int:
    """Drains a worker."""
    with options.open_client(args) as client:
        remaining = client.drain_worker(args.worker, timeout=args.timeout)
    print(f"{args.worker} is draining: {remaining} sequences are left on it")
    return 0


def resume(args: argparse.Namespace) -> int:
    """Uses a worker again."""
    with options.open_client(args) as client:
        client.resume_worker(args.worker, timeout=args.timeout)
    return 0


def abort(args: argparse.Namespace) -> int:
    """Ends requests; 1 where none was alive."""
    with options.open_client(args) as client:
        ids = client.abort(*args.requests, tenant=args.tenant, timeout=args.timeout)
    for id in ids:
        print(f"{id} is ended")
    if not ids:
        print("no such request is alive")
    return 0 if ids else 1
