"""octavo chat: a conversation in the terminal."""

import argparse
import sys

from octavo_client.errors import OctavoError
from octavo_client.params import SamplingParams
from octavo_client.prompts import Message
from octavo_client.results import Delta
from octavo_client.sync import Client
from octavo_client.verbs import options

WELCOME = "Ctrl-C stops an answer, /clear forgets the conversation, /quit or Ctrl-D ends."


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser("chat", help="talk to the model", description=f"A conversation. {WELCOME}")
    parser.add_argument("--system", metavar="TEXT", help="instruction that stands before the conversation")
    options.add_server(parser)
    options.add_sampling(parser)
    parser.set_defaults(run=chat)


def chat(args: argparse.Namespace) -> int:
    """Reads lines and answers them until the user has enough."""
    params = options.sampling_params(args)
    opening: list[Message] = [{"role": "system", "content": args.system}] if args.system else []
    history = list(opening)
    print(WELCOME, file=sys.stderr)
    with options.open_client(args) as client:
        while (line := _read_line()) is not None:
            if line == "/clear":
                history = list(opening)
            elif line:
                history = _answer(client, [*history, {"role": "user", "content": line}], params, args.timeout)
    return 0


def _read_line() -> str | None:
    try:
        line = input("> ").strip()
    except EOFError:
        print()
        return None
    except KeyboardInterrupt:
        print()
        return ""
    return None if line == "/quit" else line


def _answer(client: Client, history: list[Message], params: SamplingParams, timeout: float | None) -> list[Message]:
    """Streams one answer and returns the history with it, or without the question when there was no answer."""
    said: list[str] = []
    try:
        for event in client.chat_stream(history, params, timeout=timeout):
            if isinstance(event, Delta):
                said.append(event.text)
                print(event.text, end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)
        return history[:-1]
    print(flush=True)
    return [*history, {"role": "assistant", "content": "".join(said)}]
