"""Masks of constrained rows."""

import math

import numpy as np
import pytest
import torch
from octavo_kernels.ops import Masks, Ops
from torch import Tensor

from tests.kernels.implementations import every_ops
from tests.kernels.samplers import step_of


def mask(ops: Ops, logits: Tensor, allowed: dict[int, set[int]]) -> None:
    """`allowed`: tokens, by row of logits. Masks have room for more rows than there are, of which all is forbidden."""
    words = -(-logits.shape[1] // 32)
    bits = np.zeros((len(logits) + 1, words), np.uint32)
    for i, tokens in enumerate(allowed.values()):
        for token in tokens:
            bits[i, token // 32] |= np.uint32(1 << token % 32)
    row = torch.tensor([*allowed, *[0] * (len(logits) + 1 - len(allowed))], dtype=torch.int32)
    count = torch.tensor([len(allowed)], dtype=torch.int32)
    ops.mask_logits(logits, Masks(row, torch.from_numpy(bits.view(np.int32)), count), step_of([0]))


@every_ops
@pytest.mark.parametrize("vocabulary", [1, 2, 31, 32, 33, 1000, 9001])
def test_forbidden_tokens_become_minus_infinity_and_nothing_else_changes(ops: Ops, vocabulary: int) -> None:
    draw = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(4, vocabulary, generator=draw) * 5
    logits[2, 0] = -0.0
    before = logits.clone()
    some = {t for t in range(vocabulary) if torch.rand((), generator=draw) < 0.5} | {0, vocabulary - 1}
    mask(ops, logits, {2: some, 0: set(range(vocabulary)), 3: set()})
    is_some = torch.tensor([token in some for token in range(vocabulary)])
    assert torch.equal(logits[2].view(torch.int32)[is_some], before[2].view(torch.int32)[is_some])
    assert set(logits[2][~is_some].tolist()) <= {-math.inf}
    assert torch.equal(logits[:2], before[:2])
    assert set(logits[3].tolist()) == {-math.inf}


@every_ops
def test_a_step_without_masks_changes_nothing(ops: Ops) -> None:
    logits = torch.randn(2, 100)
    before = logits.clone()
    mask(ops, logits, {})
    assert torch.equal(logits, before)


@every_ops
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_still_none(ops: Ops, value: float) -> None:
    logits = torch.zeros(1, 70)
    logits[0, 33] = value
    mask(ops, logits, {0: {1, 2}})
    assert logits[0, 33].isnan()
    assert logits[0, :3].tolist() == [-math.inf, 0, 0]
