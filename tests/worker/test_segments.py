"""A captured step is cut at exchanges, and runs in the order in which it was written."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from octavo_kernels.ops import Ops, pick
from octavo_worker.group.segments import in_segments

from tests.kernels.implementations import WHOLE
from tests.kernels.steps import count


def watched(log: list[str]) -> Ops:
    """Kernels that log what runs, and each capture with what it holds."""

    def capture(_: object, body: Callable[[], None]) -> Callable[[], None]:
        held: list[str] = []
        outer, log[:] = list(log), []
        body()
        held, log[:] = list(log), outer
        return lambda: log.append(f"tape of {' '.join(held)}")

    def noting(name: str) -> Callable[..., None]:
        return lambda *arguments, **named: log.append(name)

    noted = {name: noting(name) for name in ("linear", "rms_norm", "all_reduce", "all_gather", "sample")}
    return replace(pick("cpu", "reference"), capture=capture, **noted)  # type: ignore[arg-type]


def test_what_lies_between_two_exchanges_is_one_tape() -> None:
    log: list[str] = []
    ops: Any = in_segments(watched(log))

    def step() -> None:
        ops.rms_norm(*[None] * 6)
        ops.linear(*[None] * 4)
        ops.all_reduce(None, None)
        ops.all_reduce(None, None)
        ops.linear(*[None] * 4)
        ops.all_gather(None, None, None)
        ops.sample(*[None] * 4)

    replay = ops.capture(None, step)
    assert log == [], "nothing runs while a step is captured"
    replay()
    assert log == [
        "tape of rms_norm linear",
        "all_reduce",
        "all_reduce",
        "tape of linear",
        "all_gather",
        "tape of sample",
    ]


def test_what_is_not_captured_runs_at_once() -> None:
    log: list[str] = []
    ops: Any = in_segments(watched(log))
    ops.linear(*[None] * 4)
    ops.all_reduce(None, x=None)
    assert log == ["linear", "all_reduce"]


def test_a_step_that_fails_while_it_is_captured_leaves_no_recording_behind() -> None:
    log: list[str] = []
    ops: Any = in_segments(watched(log))
    with pytest.raises(ZeroDivisionError):
        ops.capture(None, lambda: 1 / 0)
    ops.linear(*[None] * 4)
    assert log == ["linear"]


def test_segments_read_how_many_rows_there_are_when_they_run() -> None:
    for name in WHOLE:
        kernels = pick("cpu", name, threads=1)
        x, out = (kernels.new_buffer((4, 8), "float32") for _ in range(2))
        index, rows = kernels.share(np.arange(4, dtype=np.int32)), count(2)
        doubled = replace(kernels, all_reduce=lambda rows, x: x.__imul__(2))
        ops = in_segments(doubled)

        def step(ops: Ops = ops, x: object = x, out: object = out, index: object = index, rows: object = rows) -> None:
            ops.all_reduce(rows, x)
            ops.take_rows(rows, x, index, out)

        replay = ops.capture(None, step)  # type: ignore[arg-type]
        x[:] = 1
        replay()
        assert np.asarray(out)[:, 0].tolist() == [2, 2, 0, 0]
        rows[0] = 3
        replay()
        assert np.asarray(out)[:, 0].tolist() == [4, 4, 4, 0]
