"""octavo complete: continues a prompt on stdout, streaming one answer or writing several when they are there."""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace

from octavo_client.results import Delta, Event
from octavo_client.verbs import options


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser("complete", help="continue a prompt", description="Streams the continuation of a prompt.")
    parser.add_argument("prompt", metavar="PROMPT", help="text to continue; - reads it from stdin")
    options.add_server(parser)
    options.add_sampling(parser)
    parser.add_argument(
        "--n", type=int, default=1, help="answers; several are not streamed, each begins with its number"
    )
    parser.set_defaults(run=complete)


def complete(args: argparse.Namespace) -> int:
    """Writes the answer, or all of them."""
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    params = replace(options.sampling_params(args), n=args.n)
    with options.open_client(args) as client:
        if params.n > 1:
            for answer in client.generate(prompt, params, timeout=args.timeout).outputs:
                print(f"[{answer.index}] {answer.text}")
            return 0
        write_answer(client.stream(prompt, params, timeout=args.timeout))
    return 0


def write_answer(events: Iterable[Event]) -> None:
    """Writes the text of a stream to stdout as it comes and ends the line, also where an error or Ctrl-C ends it."""
    has_begun = False
    try:
        for event in events:
            if isinstance(event, Delta):
                print(event.text, end="", flush=True)
                has_begun = True
    finally:
        if has_begun:
            print(flush=True)
