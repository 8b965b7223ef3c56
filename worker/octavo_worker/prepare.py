"""`python -m octavo_worker.prepare MODEL FOLDER`: a worker's half of an engine folder. `octavo prepare` runs it.

The folder exists already, with the scheduler's half in it. With --verify MODEL is an engine folder, and every byte of it is
compared with its manifest. Exit code 2 with one sentence on stderr for bad input.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from octavo.audit import refuse_unpickling

from octavo_worker.config import WorkerConfig
from octavo_worker.engine import write_engine
from octavo_worker.errors import ConfigError, ModelError, WorkerError
from octavo_worker.flags import Parser
from octavo_worker.loading import behind_a_bar
from octavo_worker.manifest import is_engine, verify
from octavo_worker.precision import choose, pick_kernels
from octavo_worker.source import open_source
from octavo_worker.weights import load


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    try:
        flags = vars(parser().parse_args(arguments))
        folder, is_check = flags.pop("folder"), flags.pop("verify")
        if is_check:
            verify(flags["model"])
        elif folder is None:
            raise ConfigError("the folder to write into is missing")
        else:
            prepare(WorkerConfig(**{name: value for name, value in flags.items() if value is not None}), folder)
    except WorkerError as error:
        print(f"octavo prepare: {error}", file=sys.stderr)
        return 2
    return 0


def prepare(config: WorkerConfig, folder: Path) -> None:
    """Read the model, pack its weights as the configuration says, write them. Raises WorkerError."""
    if is_engine(config.model):
        raise ModelError(f"{config.model} is an engine folder already; prepare the model it was made from")
    source = open_source(config.model)
    ops = pick_kernels(config)
    format = choose(config, ops).weights
    weights = behind_a_bar(f"packing {config.model.name}", lambda show: load(source, ops, format, show))
    try:
        write_engine(folder, weights, source.config, ops, format, config.dtype)
    except OSError as error:
        raise ModelError(f"{folder} cannot be written: {error.strerror}") from error


def parser() -> Parser:
    made = Parser(prog="octavo prepare", description="Write a worker's half of an engine folder.", allow_abbrev=False)
    made.add_argument("model", type=Path, help="Hugging Face folder or .gguf file")
    made.add_argument("folder", type=Path, nargs="?", help="where to write")
    made.add_argument("--weights", help="their format (auto: as --dtype)")
    made.add_argument("--dtype", help="what a worker that serves them computes in unless it is told otherwise")
    made.add_argument("--kernels", help="for which kernels; default: the best for this machine")
    made.add_argument("--threads", type=int, help="threads to pack with; default: all cores")
    made.add_argument("--verify", action="store_true", help="compare an engine folder with its manifest")
    return made


if __name__ == "__main__":
    refuse_unpickling()
    sys.exit(main())
