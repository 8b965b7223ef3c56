"""Biases of logits, against a rule in a few lines."""

import math
import random

import pytest
import torch
from octavo_kernels.ops import BIAS_WORDS, Ops
from torch import Tensor

from tests.kernels.implementations import every_ops
from tests.kernels.samplers import sampling_of, step_of
from tests.kernels.steps import int32

NEVER, ALWAYS = 0, 2**31 - 1
Bias = tuple[int, float, int, int]
"""Token, what is added, until, context."""


def biased(
    ops: Ops, logits: Tensor, biases: list[list[Bias]], history: Tensor, num_prompt: list[int], length: list[int]
) -> Tensor:
    """Row i of the result is row i of the logits with the biases of slot i."""
    count, most = len(biases), max(map(len, biases))
    packed = torch.zeros(count, max(most, 1), BIAS_WORDS, dtype=torch.int32)
    for slot, some in enumerate(biases):
        for place, (token, value, until, context) in enumerate(some):
            packed[slot, place] = int32(token, int(torch.tensor(value).view(torch.int32)), until, context)
    sampling = sampling_of(
        count,
        history=history,
        num_prompt=num_prompt,
        length=length,
        num_biases=int32(*map(len, biases)),
        biases=packed.flatten(1),
    )
    step = step_of([])
    step.bias_row, step.bias_slot = int32(*range(count)), int32(*range(count))
    step.count(tokens=0, rows=0, head_rows=count, samples=0, biased=count)
    out, before = torch.full((count + 1, logits.shape[1]), 7.0), logits.clone()
    ops.bias_logits(logits, sampling, step, out)
    assert torch.equal(logits, before), "logits stay as they are"
    assert set(out[-1].tolist()) == {7.0}
    return out[:-1]


def rule(row: Tensor, biases: list[Bias], answer: list[int], length: int) -> Tensor:
    out = row.clone()
    for place, (token, value, until, context) in enumerate(biases):
        before = [other for other, _, _, _ in biases[place - context : place]] if context > 0 else []
        if context >= 0 and length < until and answer[len(answer) - len(before) :] == before:
            out[token] += value
    return out


def word(tokens: list[int]) -> list[Bias]:
    """The last of these tokens is forbidden after the others."""
    *before, last = tokens
    return [*((token, 0.0, ALWAYS, -1) for token in before), (last, -math.inf, ALWAYS, len(before))]


@every_ops
@pytest.mark.parametrize("vocabulary", [7, 5000])
def test_what_is_added_is_what_the_rule_says(ops: Ops, vocabulary: int) -> None:
    draw = random.Random(vocabulary)
    rows, width = 4, 12
    logits = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(1))
    history = torch.randint(0, 4, (rows, width), generator=torch.Generator().manual_seed(2)).int()
    lengths, prompts = [3, 9, 12, 12], [3, 4, 2, 12]
    biases: list[list[Bias]] = []
    for length in lengths:
        some = [(draw.randrange(vocabulary), draw.uniform(-100, 100), ALWAYS, 0) for _ in range(5)]
        some += [(draw.randrange(vocabulary), -math.inf, length + draw.choice([0, 1]), 0) for _ in range(3)]
        for _ in range(40):
            some += word([draw.randrange(4) for _ in range(draw.randrange(1, 4))])
        biases.append(some)
    biases[1] *= 5
    found = biased(ops, logits, biases, history, prompts, lengths)
    for i, (some, prompt, length) in enumerate(zip(biases, prompts, lengths, strict=True)):
        wanted = rule(logits[i], some, history[i, prompt:length].tolist(), length)
        torch.testing.assert_close(found[i], wanted, rtol=1e-5, atol=1e-4)
        assert (found[i] == -math.inf).any()


@every_ops
def test_a_word_is_forbidden_after_its_beginning_and_not_after_less_of_it_nor_across_the_prompt(ops: Ops) -> None:
    history = torch.tensor([[9, 1, 2, 3], [9, 9, 2, 3], [1, 2, 3, 0], [9, 1, 2, 3]]).int()
    forbidden = word([1, 2, 3, 4])
    found = biased(ops, torch.zeros(4, 10), [forbidden] * 4, history, [0, 0, 0, 2], [4, 4, 3, 4])
    assert (found[:, 4] == -math.inf).tolist() == [True, False, True, False]
    assert found[:, [0, 1, 2, 3, 5]].eq(0).all()


@every_ops
def test_a_bias_ends_when_the_history_is_so_long(ops: Ops) -> None:
    history = torch.zeros(2, 8).int()
    found = biased(ops, torch.zeros(2, 3), [[(1, -math.inf, 5, 0)], [(1, -math.inf, 5, 0)]], history, [2, 2], [4, 5])
    assert found.tolist() == [[0.0, -math.inf, 0.0], [0.0, 0.0, 0.0]]


@every_ops
def test_a_bias_and_a_ban_of_one_token_give_a_ban(ops: Ops) -> None:
    both: list[Bias] = [(2, 100.0, ALWAYS, 0), (2, -math.inf, ALWAYS, 0), (2, -math.inf, ALWAYS, 0)]
    found = biased(ops, torch.ones(1, 4), [both], torch.zeros(1, 4).int(), [0], [0])
    assert found.tolist() == [[1.0, 1.0, -math.inf, 1.0]]
