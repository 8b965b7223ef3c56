"""One mutant in a process of its own: the mutated module takes the real one's place before anything imports it.

Reads {module, path, source, seeds} from standard input, writes {killed, seed, why} to standard output. Any violation,
exception or run without end kills the mutant.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType

SECONDS_PER_SEED = 20
"""Far more than any seed takes."""


class Hang(BaseException):
    """A run does not end."""


class MutatedModule(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.text = source.encode()

    def get_data(self, path: str) -> bytes:
        return self.text

    def path_stats(self, path: str) -> dict[str, float]:
        raise OSError("no compiled module stands for a mutant")


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, loader: MutatedModule) -> None:
        self.loader = loader

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.loader.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.loader.path, loader=self.loader)


def hang(signum: int, frame: FrameType | None) -> None:
    raise Hang


def first_kill(seeds: int) -> dict[str, object]:
    from tests.simulation.world import World

    for seed in range(seeds):
        signal.alarm(SECONDS_PER_SEED)
        try:
            World(seed, is_liveness=seed % 4 == 3).run()
        except Hang:
            return {"killed": True, "seed": seed, "why": "it never ends"}
        except Exception as error:
            return {"killed": True, "seed": seed, "why": f"{type(error).__name__}: {error}"[:200]}
    return {"killed": False, "seed": seeds, "why": ""}


def main() -> int:
    job = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, hang)
    sys.meta_path.insert(0, Finder(MutatedModule(job["module"], job["path"], job["source"])))
    try:
        found = first_kill(job["seeds"])
    except Exception as error:  # the mutated module cannot even be imported
        found = {"killed": True, "seed": -1, "why": f"{type(error).__name__}: {error}"[:200]}
    print(json.dumps(found), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
