"""octavo tokenize: the tokens of a text, or how many there are."""

import argparse
import sys

from octavo_client.prompts import Message
from octavo_client.verbs import options

REPLACEMENT = "\ufffd"
MOST_BYTES = 4
"""Of a character: so many tokens may make one."""


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser(
        "tokenize",
        help="show the tokens of a text",
        description="Prints a text's token ids, or with --count how many there are.",
    )
    parser.add_argument("text", metavar="TEXT", help="the text; - reads it from stdin")
    parser.add_argument("--chat", action="store_true", help="as a user's message, after the model's chat template")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--count", action="store_true", help="only count them")
    how.add_argument(
        "--texts", action="store_true", help="a line for each, with its text; those of one character together"
    )
    options.add_server(parser)
    parser.set_defaults(run=tokenize)


def tokenize(args: argparse.Namespace) -> int:
    """Prints the ids, a line for each with its text, or their number."""
    text = sys.stdin.read() if args.text == "-" else args.text
    content: str | list[Message] = [{"role": "user", "content": text}] if args.chat else text
    with options.open_client(args) as client:
        if args.count:
            print(client.count_tokens(content, timeout=args.timeout))
            return 0
        ids = client.tokenize(content, timeout=args.timeout)
        if not args.texts:
            print(*ids)
            return 0
        held: list[int] = []
        for token in ids:
            held.append(token)
            piece = client.detokenize(held, skip_special_tokens=False, timeout=args.timeout)
            if not piece.endswith(REPLACEMENT) or len(held) == MOST_BYTES:
                print(*held, repr(piece))
                held = []
    return 0
