"""Octavo's worker alone, on recorded plans. Arguments: a model, flags of the worker.

For each piece of work a real server is run with a recording scheduler; its plans are then executed by the runner of
`octavo worker` in this process, with all checks and with sampling, and every sampled token is compared with that run's.
Only the execution of the plans counts. A piece that comes again is not recorded again.
"""

import json
import sys
from pathlib import Path

from benchmarks.peers.runners.protocol import Request, serve, take_stdout
from benchmarks.plans import Recording, replay
from benchmarks.service import NO_PREFIX_CACHE, record, start_runner
from benchmarks.workload import Work


def main() -> None:
    answers = take_stdout()
    model, *flags = sys.argv[1:]
    runner = start_runner(Path(model), flags)
    recordings: dict[str, Recording] = {}

    def run(work: list[Request]) -> tuple[float, list[list[int]]]:
        key = json.dumps(work)
        if key not in recordings:
            recordings[key] = record(Path(model), [Work(*request) for request in work], flags, [NO_PREFIX_CACHE])
        replayed = replay(runner, recordings[key])
        if replayed.different_steps:
            raise RuntimeError(f"{replayed.different_steps} of {replayed.steps} steps sampled other tokens than before")
        return replayed.seconds, recordings[key].ids

    serve(answers, {"engine": "Octavo", "kernels": runner.ops.name}, run)


if __name__ == "__main__":
    main()
