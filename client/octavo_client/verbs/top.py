"""octavo top: workers, pages, queue, speed and swaps of a running server, again and again."""

import argparse
import time

from rich.console import Console
from rich.live import Live

from octavo_client.errors import ConfigError, OctavoError
from octavo_client.sync import Client
from octavo_client.top_view import frame
from octavo_client.verbs import options
from octavo_client.window import Window

LEAST_INTERVAL = 0.1
"""Seconds."""


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser("top", help="watch a running server", description="Watches a running server.")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="default: %(default)s")
    parser.add_argument("--frames", type=int, metavar="N", help="end after so many; default: with Ctrl-C")
    options.add_server(parser)
    parser.set_defaults(run=top)


def top(args: argparse.Namespace) -> int:
    """Draws a frame every interval. A server that cannot be reached at first is an error; later it may come back."""
    if args.interval < LEAST_INTERVAL:
        raise ConfigError(f"--interval {args.interval:g} must be at least {LEAST_INTERVAL} seconds.")
    console = Console()
    window = Window()
    with options.open_client(args) as client:
        window.add(client.status(timeout=args.timeout))
        if not console.is_terminal:
            for _ in range(args.frames or 1):
                trouble = _look(client, window, args)
                console.print(frame(window, client.address, console.width, trouble))
            return 0
        with Live(console=console, screen=True, auto_refresh=False) as live:
            shown = 0
            trouble = ""
            while args.frames is None or shown < args.frames:
                live.update(frame(window, client.address, console.width, trouble), refresh=True)
                trouble = _look(client, window, args)
                shown += 1
    return 0


def _look(client: Client, window: Window, args: argparse.Namespace) -> str:
    """Waits, then adds the status; why there is none otherwise."""
    time.sleep(args.interval)
    try:
        window.add(client.status(timeout=args.timeout or 5.0))
    except OctavoError as error:
        return str(error)
    return ""
