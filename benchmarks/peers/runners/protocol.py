"""The conversation between the benchmark and one engine: lines of JSON, on stdin and on what was stdout.

    engine     {"about": {"engine": "…", "version": "…"}}            once it can take work
    benchmark  [[[prompt ids], number of tokens to generate], …]     one piece of work
    engine     {"seconds": 1.23, "ids": [[generated ids], …]}        when all of it is done

All requests of a piece are there at once. Only the engine's own time counts. The standard library alone: this module runs
in the environments of the peers.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

Request = tuple[list[int], int]
Generate = Callable[[list[Request]], list[list[int]]]
Run = Callable[[list[Request]], tuple[float, list[list[int]]]]
"""Seconds, and the generated ids of each request."""


def take_stdout() -> TextIO:
    """Where answers go. Whatever the engine prints from now on goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def timed(generate: Generate) -> Run:
    """An engine that works from the first moment of a piece to the last."""

    def run(work: list[Request]) -> tuple[float, list[list[int]]]:
        started = time.perf_counter()
        ids = generate(work)
        return time.perf_counter() - started, ids

    return run


def serve(answers: TextIO, about: dict[str, str], run: Run) -> None:
    """Answer until there is no more work."""
    answers.write(json.dumps({"about": about}) + "\n")
    for line in sys.stdin:
        seconds, ids = run([(prompt, num_tokens) for prompt, num_tokens in json.loads(line)])
        answers.write(json.dumps({"seconds": seconds, "ids": ids}) + "\n")
