"""Log-probabilities against float64."""

import math

import numpy as np
import pytest
import torch
from octavo_kernels.ops import Ops
from torch import Tensor

from tests.kernels.implementations import every_ops
from tests.kernels.samplers import sampling_of, step_of
from tests.kernels.steps import int32

BEST = 20


def logprobs(ops: Ops, logits: Tensor, tokens: list[int], rows: list[int] | None = None) -> tuple[Tensor, Tensor]:
    """Values and ids [tokens, 1 + BEST]; what lies behind them stays. Token i lies at place 5 - i of slot i."""
    count = len(tokens)
    history = torch.full((count, 6), -7, dtype=torch.int32)
    for i, token in enumerate(tokens):
        history[i, 5 - i] = token
    step = step_of([])
    step.score_row = int32(*(range(count) if rows is None else rows), 0)
    step.score_slot, step.score_position = int32(*range(count), 0), int32(*(5 - i for i in range(count)), 0)
    step.count(tokens=0, rows=0, head_rows=len(logits), samples=0, scores=count)
    values, ids = torch.full((count + 1, 1 + BEST), 7.0), torch.full((count + 1, 1 + BEST), 7, dtype=torch.int32)
    ops.logprobs(logits, sampling_of(count, history=history), step, values, ids)
    assert set(values[-1].tolist()) == set(ids[-1].tolist()) == {7}
    return values[:-1], ids[:-1]


def assert_right(logits: Tensor, token: int, values: Tensor, ids: Tensor) -> None:
    truth = logits.double().log_softmax(-1)
    ranking = [token, *np.lexsort((np.arange(len(logits)), -logits.numpy()))[:BEST].tolist()]
    wanted = [one for one in ranking if logits[one] > -math.inf]
    assert ids.tolist() == wanted + [-1] * (1 + BEST - len(wanted))
    torch.testing.assert_close(values[: len(wanted)].double(), truth[wanted], rtol=1e-6, atol=1e-6)
    assert set(values[len(wanted) :].tolist()) <= {-math.inf}


@every_ops
@pytest.mark.parametrize("vocabulary", [1, 2, 31, 1000, 5000, 49152])
@pytest.mark.parametrize("digits", [9, 1])  # few: many ties
def test_they_are_those_of_the_softmax_and_ranked(ops: Ops, vocabulary: int, digits: int) -> None:
    logits = torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(vocabulary)) * 4
    logits = logits.round(decimals=digits)
    tokens = [0, vocabulary - 1, vocabulary // 2]
    values, ids = logprobs(ops, logits, tokens)
    for i, token in enumerate(tokens):
        assert_right(logits[i], token, values[i], ids[i])


@every_ops
def test_equal_logits_are_ranked_by_id_however_many(ops: Ops) -> None:
    logits = torch.zeros(1, 12_000)
    logits[0, ::2] = -0.0
    values, ids = logprobs(ops, logits, [11_999])
    assert_right(logits[0], 11_999, values[0], ids[0])


@every_ops
@pytest.mark.parametrize("vocabulary", [300, 12_000])
def test_what_has_no_probability_is_not_listed(ops: Ops, vocabulary: int) -> None:
    logits = torch.full((1, vocabulary), -math.inf)
    logits[0, [17, 250]] = torch.tensor([1.0, 3.0])
    values, ids = logprobs(ops, logits, [17])
    assert ids[0, :4].tolist() == [17, 250, 17, -1]
    assert_right(logits[0], 17, values[0], ids[0])


@every_ops
def test_large_logits_lose_nothing(ops: Ops) -> None:
    logits = torch.tensor([[1e38, -1e38, 1e38, 0.0], [-1e4, -1e4 - 60, -1e4 - 1, -2e4]])
    values, ids = logprobs(ops, logits, [0, 1])
    for i, token in enumerate([0, 1]):
        assert_right(logits[i], token, values[i], ids[i])


@every_ops
def test_tokens_of_one_row_have_their_own_and_a_row_that_is_no_numbers_has_none(ops: Ops) -> None:
    logits = torch.randn(4, 500)
    logits[1, 3], logits[2, 499], logits[3] = math.nan, math.inf, -math.inf
    values, ids = logprobs(ops, logits, [5, 3, 6, 499, 7], rows=[0, 1, 0, 2, 3])
    assert_right(logits[0], 5, values[0], ids[0])
    assert_right(logits[0], 6, values[2], ids[2])
    for nothing in (1, 3, 4):
        assert set(ids[nothing].tolist()) == {-1}
        assert set(values[nothing].tolist()) == {-math.inf}
