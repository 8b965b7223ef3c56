"""The command line `octavo`. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted; a failure is one sentence."""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from octavo.audit import refuse_unpickling

from octavo_client.errors import ConfigError, InvalidRequest, OctavoError
from octavo_client.programs import PROGRAMS, become

# Verbs and their modules, which are imported when they are needed: `octavo serve` need not wait for what others show with.
VERBS = {
    "serve": "verbs.serve",
    "prepare": "verbs.prepare",
    "complete": "verbs.complete",
    "chat": "verbs.chat",
    "tokenize": "verbs.tokenize",
    "status": "verbs.status",
    "watch": "verbs.watch",
    "top": "verbs.top",
    "bench": "verbs.bench",
    "doctor": "verbs.doctor",
    "requests": "verbs.requests",
    "explain": "verbs.requests",
    "pages": "verbs.pages",
    "pin": "verbs.pins",
    "unpin": "verbs.pins",
    "pins": "verbs.pins",
    "flush": "verbs.steer",
    "drain": "verbs.steer",
    "resume": "verbs.steer",
    "abort": "verbs.steer",
    "demo": "demo",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:  # this process is ours alone
        refuse_unpickling()
    if argv is None and words[:1] != ["chat"]:  # there each Ctrl-C stops one answer
        signal.signal(signal.SIGINT, _interrupt_once)
    try:
        if words and words[0] in PROGRAMS:
            become(PROGRAMS[words[0]][0], words[1:])
        args = _parser(VERBS.get(words[0]) if words else None).parse_args(words)
        code: int = args.run(args)
        return code
    except (ConfigError, InvalidRequest) as error:
        return _fail(error, 2)
    except OctavoError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has left. Python would complain again when it flushes stdout at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    """The first Ctrl-C ends the verb; a second one must not disturb the clean-up that the first began."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _parser(module: str | None = None) -> argparse.ArgumentParser:
    """Knows the verbs of one module, or of all."""
    parser = argparse.ArgumentParser(
        prog="octavo", description="Serves large language models whose KV cache lives in pages."
    )
    if module is None:
        from importlib import metadata  # it reads what lies around every package

        version = metadata.version("octavo")
        parser.add_argument("--version", action="version", version=f"octavo {version}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name in [module] if module else dict.fromkeys(VERBS.values()):
        importlib.import_module(f"octavo_client.{name}").add(verbs)
    for name, (_, text) in PROGRAMS.items():
        verbs.add_parser(name, help=text)
    return parser


def _fail(error: OctavoError, code: int) -> int:
    print(f"octavo: {error}", file=sys.stderr)
    return code
