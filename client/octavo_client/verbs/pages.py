"""octavo pages: a map of every page of every worker, one coloured letter each."""

import argparse

from octavo.v1 import admin_pb2 as pb
from rich.console import Console
from rich.text import Text

from octavo_client.verbs import options
from octavo_client.verbs.cells import cell

# What a page is doing: its letter, its colour, its name in the legend.
LOOKS = {
    pb.PAGE_STATE_FREE: (".", "bright_black", "free"),
    pb.PAGE_STATE_CACHED: ("c", "cyan", "cached"),
    pb.PAGE_STATE_HELD: ("H", "green", "held"),
    pb.PAGE_STATE_SHARED: ("S", "bright_green", "shared"),
    pb.PAGE_STATE_FENCED: ("f", "yellow", "fenced"),
    pb.PAGE_STATE_SWAPPING: ("w", "magenta", "swapping"),
    pb.PAGE_STATE_QUARANTINED: ("Q", "bold red", "quarantined"),
}
UNKNOWN = ("?", "default", "newer than this client")


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser(
        "pages", help="show what every page is doing", description="Shows every page of the workers, one letter each."
    )
    parser.add_argument("--worker", default="", metavar="ID", help="of this worker only")
    options.add_server(parser)
    parser.set_defaults(run=pages)


def pages(args: argparse.Namespace) -> int:
    """Prints the maps and a legend with the number of pages of each kind."""
    with options.open_client(args) as client:
        workers = client.page_maps(args.worker, timeout=args.timeout)
    console = Console()
    for worker in workers:
        for tier, page_map in (("device", worker.device), ("host", worker.host)):
            if page_map.num_pages:
                size = f"{sum(page_map.num_pages)} {tier} pages of {worker.page_size} tokens"
                console.print(cell(f"{worker.worker_id}: {size}"))
                console.print(_letters(page_map))
                console.print(_legend(page_map))
    if not workers:
        console.print("no worker is here")
    return 0


def _letters(page_map: pb.PageMap) -> Text:
    text = Text()
    for state, length in zip(page_map.states, page_map.num_pages, strict=True):
        letter, colour, _ = LOOKS.get(state, UNKNOWN)
        text.append(letter * length, colour)
    return text


def _legend(page_map: pb.PageMap) -> Text:
    counts: dict[tuple[str, str, str], int] = {}
    for state, length in zip(page_map.states, page_map.num_pages, strict=True):
        look = LOOKS.get(state, UNKNOWN)
        counts[look] = counts.get(look, 0) + length
    text = Text()
    for look in (*LOOKS.values(), UNKNOWN):
        if look in counts:
            letter, colour, name = look
            text.append("  ").append(letter, colour).append(f" {counts[look]} {name}")
    return text
