"""Perplexity and agreement."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import perplexity
from benchmarks.perplexity import Scores, score, text, window_scores, windows
from tests.doubles.tiny_model import make_tiny_model
from tests.equality.engine import RunnerWorker, generate

PROMPT = [7, 8, 9, 10, 11]


def test_surprise_is_the_negative_logarithm_of_the_probability() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]], np.float32)) + 3
    scores = score(logits, np.array([1, 2]))
    assert scores.surprise == pytest.approx([-np.log(0.25), -np.log(0.7)], rel=1e-5)
    assert scores.likely.tolist() == [0, 2]
    assert scores.perplexity == pytest.approx((0.25 * 0.7) ** -0.5, rel=1e-5)


def test_agreement_is_the_share_of_equal_choices() -> None:
    one, other = (Scores(np.zeros(4, np.float32), np.array(likely)) for likely in ([1, 2, 3, 4], [1, 2, 9, 4]))
    assert one.agreement(other) == 0.75


def test_windows_follow_each_other_and_a_lone_token_is_dropped() -> None:
    assert windows(range(9), 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert windows(range(6), 4) == [[0, 1, 2, 3], [4, 5]]


def test_the_text_is_long_enough_and_prose() -> None:
    assert len(text().encode()) >= 99_997
    assert " the " in text(2000)


@pytest.mark.parametrize("chunk", [3, 8, 64])
def test_in_every_chunking_the_most_likely_tokens_are_those_of_a_greedy_answer(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perplexity, "CHUNK", chunk)
    worker = RunnerWorker(make_tiny_model(tmp_path), page_size=4, pages=32, max_slots=64, max_step_tokens=64)
    (answer,) = generate(worker, [PROMPT], 20)
    scores = window_scores(worker.runner, PROMPT + answer)
    assert len(scores.surprise) == len(scores.likely) == len(PROMPT) + len(answer) - 1
    assert scores.likely[len(PROMPT) - 1 :].tolist() == answer
