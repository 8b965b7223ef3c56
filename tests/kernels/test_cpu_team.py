"""Tapes and the threads that run them."""

import numpy as np
import pytest
from octavo_kernels import cpu
from octavo_kernels.cpu.library import variants
from octavo_kernels.cpu.tape import Team

from tests.kernels.empty import empty_step

pytestmark = pytest.mark.skipif(not cpu.is_built(), reason="the C kernels are not built here")


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_tapes_of_different_lengths_one_after_the_other_run_each_entry_once(threads: int) -> None:
    ops = cpu.build(False, threads, variants()[0])
    rows, ones = np.array([3], np.int32), np.ones((3, 16), np.float32)
    residual, out = ops.new_buffer((3, 16), "float32"), ops.new_buffer((3, 16), "float32")

    def add() -> None:
        ops.rms_norm(rows, ones, residual, ones[0], 1e-5, out)

    def add_five_times() -> None:
        for _ in range(5):
            add()

    five = ops.capture(empty_step(), add_five_times)
    for _ in range(300):
        add()
        five()
    assert (residual == 1800).all()


def test_what_is_recorded_lives_as_long_as_its_tape() -> None:
    ops = cpu.build(False, 2, variants()[0])
    out = ops.new_buffer((3, 16), "float32")

    def body() -> None:
        ops.rms_norm(np.array([3], np.int32), None, np.ones((3, 16), np.float32), np.full(16, 2, np.float32), 0.0, out)

    replay = ops.capture(empty_step(), body)
    np.random.default_rng(0).standard_normal(100_000)  # takes memory that is free
    replay()
    assert (out == 2).all()


def test_a_tape_that_fails_to_be_recorded_leaves_the_team_running_at_once() -> None:
    ops = cpu.build(False, 2, variants()[0])
    with pytest.raises(TypeError, match="float64"):
        ops.capture(
            empty_step(),
            lambda: ops.rms_norm(np.ones(1, np.int32), None, np.ones((1, 16)), np.ones(16), 0.0, np.ones((1, 16))),
        )
    out = ops.new_buffer((1, 16), "float32")
    ops.rms_norm(np.ones(1, np.int32), None, np.ones((1, 16), np.float32), np.ones(16, np.float32), 0.0, out)
    assert (out == 1).all()


def test_actions_in_python_run_between_the_pieces_of_a_tape_each_time_and_not_when_it_is_recorded() -> None:
    ops = cpu.build(False, 2, variants()[0])
    rows, ones, residual = np.ones(1, np.int32), np.ones((1, 16), np.float32), np.zeros((1, 16), np.float32)
    seen: list[float] = []

    def body() -> None:
        ops.call(lambda: seen.append(float(residual[0, 0])))
        for _ in range(2):
            ops.rms_norm(rows, ones, residual, ones[0], 1e-5, ones.copy())
        ops.call(lambda: seen.append(float(residual[0, 0])))
        ops.call(lambda: np.copyto(residual, residual * 10))
        ops.rms_norm(rows, ones, residual, ones[0], 1e-5, ones.copy())

    replay = ops.capture(empty_step(), body)
    assert seen == []
    replay()
    replay()
    assert seen == [0, 2, 21, 23]
    assert (residual == 231).all()


def test_an_action_that_fails_ends_its_step_and_not_the_next_one() -> None:
    ops = cpu.build(False, 2, variants()[0])
    residual, numbers = np.zeros((1, 16), np.float32), iter([1.0])
    one, ones = np.ones(1, np.int32), np.ones(16, np.float32)

    def body() -> None:
        ops.call(lambda: residual.fill(next(numbers)))
        ops.rms_norm(one, residual.copy(), residual, ones, 0.0, ones[None].copy())

    replay = ops.capture(empty_step(), body)
    replay()
    with pytest.raises(StopIteration):
        replay()
    numbers = iter([3.0])
    replay()
    assert (residual == 3).all()


def test_outside_of_a_tape_an_action_runs_at_once() -> None:
    seen: list[int] = []
    cpu.build(False, 1, variants()[0]).call(lambda: seen.append(1))
    assert seen == [1]


def test_a_variant_that_does_not_run_here_is_refused() -> None:
    with pytest.raises(MemoryError, match="no such kernels"):
        Team(2, "avx1024")
