"""octavo prepare: make an engine folder of a model, or look whether one is whole."""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from octavo_client import engine
from octavo_client.errors import ConfigError

FLAGS: tuple[tuple[str, str, str], ...] = (
    ("--weights", "NAME", "format of the weights: auto (as dtype), float32, bfloat16, int8 or int4; fp8 is for GPUs"),
    ("--dtype", "NAME", "what its workers compute in unless they are told otherwise (default: auto)"),
    ("--kernels", "NAME", "for which kernels (default: the best of this machine)"),
    ("--threads", "N", "threads to work with (default: one a core)"),
)


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser(
        "prepare",
        help="make an engine folder of a model, from which serving starts at once",
        description="Writes a model's weights as the kernels of this machine want them, with all that serving needs.",
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="Hugging Face folder or GGUF file")
    parser.add_argument("folder", metavar="OUT", type=Path, nargs="?", help="the folder to make")
    for flag, metavar, text in FLAGS:
        parser.add_argument(flag, metavar=metavar, help=text)
    parser.add_argument(
        "--verify", action="store_true", help="compare the engine folder MODEL with its manifest instead"
    )
    parser.set_defaults(run=prepare)


def prepare(args: argparse.Namespace) -> int:
    """Makes or verifies; 0. Raises PrepareFailed."""
    if args.verify:
        found = engine.verify(args.model)
        print(f"octavo: {args.model} is whole: {found.num_files} files as they were prepared")
        return 0
    if args.folder is None:
        raise ConfigError("octavo prepare needs the folder to make: octavo prepare MODEL OUT.")
    flags = engine.flags_of({name: getattr(args, name) for name in ("weights", "dtype", "kernels", "threads")})
    before = signal.signal(signal.SIGTERM, _leave)  # so that what was begun is taken away
    try:
        made = engine.prepare(args.model, args.folder, flags, verbose=sys.stderr.isatty())
    finally:
        signal.signal(signal.SIGTERM, before)
    size = f"{made.num_bytes / 2**20:.1f} MiB with {made.weights} weights for the {made.kernels} kernels"
    print(f"octavo: {args.folder} has {size}; try: octavo serve {args.folder}")
    return 0


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
