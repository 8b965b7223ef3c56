"""octavo flush, octavo drain and octavo resume: orders to a running scheduler."""

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
