"""octavo pin, octavo unpin and octavo pins: prefixes that stay in the cache."""

import argparse
import sys

from rich.console import Console
from rich.table import Table

from octavo_client.verbs import options
from octavo_client.verbs.cells import cell


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verbs to the command line."""
    parser = verbs.add_parser(
        "pin",
        help="keep a prefix in the cache",
        description="Gives a prefix a name; its pages, once computed, are the last to be evicted.",
    )
    parser.add_argument("name", metavar="NAME", help="what to call it; takes the place of a pin of the same name")
    parser.add_argument("prompt", metavar="PROMPT", help="what the requests begin with, exactly; - reads it from stdin")
    parser.add_argument("--salt", default="", help="whose requests find it: a tenant or cache_salt (default: neither)")
    options.add_server(parser)
    parser.set_defaults(run=pin)
    parser = verbs.add_parser("unpin", help="end a pin", description="Lets a pinned prefix be evicted as all others.")
    parser.add_argument("name", metavar="NAME", help="its name")
    options.add_server(parser)
    parser.set_defaults(run=unpin)
    parser = verbs.add_parser("pins", help="list the pins", description="Lists the pinned prefixes.")
    options.add_server(parser)
    parser.set_defaults(run=pins)


def pin(args: argparse.Namespace) -> int:
    """Pins a prefix."""
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    with options.open_client(args) as client:
        num_tokens = client.pin(args.name, prompt, salt=args.salt, timeout=args.timeout)
    print(f"pinned {args.name}: {num_tokens} tokens, of which full pages are kept once a request has computed them")
    return 0


def unpin(args: argparse.Namespace) -> int:
    """Ends a pin."""
    with options.open_client(args) as client:
        client.unpin(args.name, timeout=args.timeout)
    return 0


def pins(args: argparse.Namespace) -> int:
    """Prints a line for each pin."""
    with options.open_client(args) as client:
        found = client.list_pins(timeout=args.timeout)
    table = Table(box=None)
    for title in ("pin", "salt", "tokens", "pages there"):
        table.add_column(title, no_wrap=True)
    for each in found:
        table.add_row(cell(each.name), cell(each.salt), str(each.tokens), str(each.pages))
    Console().print(table if found else "nothing is pinned")
    return 0
