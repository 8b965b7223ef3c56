"""Kernels on the device against the reference, on the same numbers."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from octavo_kernels.triton.door import open_door
from octavo_worker.config import WorkerConfig
from octavo_worker.runner import Runner, build_runner

from benchmarks.gpu.bench import Bench
from tests.doubles.tiny_model import make_tiny_model
from tests.kernels.triton import linear_cases, sampling_cases
from tests.worker.late import one_after_the_other, two_in_flight

SIZES: dict[str, Any] = {"pages": 24, "host_pages": 12, "max_context": 96, "max_slots": 6, "max_step_tokens": 40}


def check_all(bench: Bench, cases: int) -> Iterator[tuple[str, float]]:
    """Figures about correctness come first: nothing that follows counts where they are bad.

    `cases` of linear layers and of sampling, drawn from all; and steps of a tiny model, with swaps, forks and two plans in
    flight, whose tokens are compared with the reference's.
    """
    ops = open_door(bench.device, invariant=True)
    draw = random.Random(1)
    linear = [linear_cases.check(case, ops) for case in draw.sample(list(linear_cases.all_cases()), cases)]
    yield "linear_worst_relative_error", max(linear)
    sampled = [sampling_cases.check(case, ops) for case in draw.sample(list(sampling_cases.all_cases()), cases)]
    yield "sampling_worst_error", max(sampled)
    yield "tokens_unlike_the_reference", float(tokens_unlike_the_reference(bench))


def tokens_unlike_the_reference(bench: Bench) -> int:
    """Of a few dozen, in float32: the two compute in other orders, so that a tie may fall the other way."""
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny_model(Path(folder) / "tiny")
        truth = one_after_the_other(runner_of(model, "reference", None))
        found = two_in_flight(runner_of(model, "triton", bench))
    return sum(a != b for ours, theirs in zip(found, truth, strict=True) for a, b in zip(ours, theirs, strict=True))


def runner_of(model: Path, kernels: str, bench: Bench | None) -> Runner:
    """Over the reference, or over the kernels at hand."""
    config = WorkerConfig(model=model, kernels=kernels, dtype="float32", **SIZES)
    if bench is None:
        return build_runner(config)
    with patch("octavo_worker.runner.pick_kernels", lambda config: open_door(bench.device)):
        return build_runner(config)
