"""Decode steps for the benchmark."""

from pathlib import Path

import pytest

from benchmarks import decoding
from benchmarks.decoding import Stopwatch, common_rate, decode_inside, pages_needed, prompts
from tests.doubles.tiny_model import make_tiny_model
from tests.equality.engine import RunnerWorker


def test_the_rate_counts_only_while_all_streams_run() -> None:
    first = [0.0, 1.0, 2.0, 3.0, 4.0]
    second = [1.5, 2.5, 3.5, 4.5]
    assert common_rate([first, second]) == 5 / 2.5  # from 1.5 to 4.0: three tokens of the first, two of the second


def test_prompts_have_nothing_in_common_and_longer_ones_go_on_like_shorter_ones() -> None:
    short, long = prompts(3, 16), prompts(3, 64)
    assert [prompt[:16] for prompt in long] == short
    assert len({tuple(prompt[:4]) for prompt in short}) == 3


def test_pages_cover_context_and_all_steps() -> None:
    assert pages_needed(2, 100, 16) == 2 * 11  # 100 + 64 + 1 tokens


def test_decode_steps_leave_the_runner_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "prompts", lambda sequences, context: [[5] * context] * sequences)
    runner = RunnerWorker(make_tiny_model(tmp_path), pages=24, max_slots=2, max_step_tokens=16).runner
    replay = runner.decoder.replay
    figures = decode_inside(runner, 2, 100)
    assert runner.counters.tokens_sampled == 2 * (decoding.NUM_STEPS + 1)
    assert runner.decoder.replay is replay
    assert not runner.slots.counts.is_active.any()
    assert figures["rate"] > 0
    assert 0 < figures["outside_share"] < 1


def test_a_stopwatch_adds_up_what_its_function_takes() -> None:
    calls: list[int] = []
    watch = Stopwatch(lambda: calls.append(1))
    watch()
    first = watch.seconds
    watch()
    assert calls == [1, 1]
    assert 0 < first < watch.seconds
