"""The invariant mode: a row's bits do not depend on what else is in the batch, where it stands, or how it is chunked.

Shapes are SmolLM2-135M's: hidden 576, 9 query heads over 3 KV heads of 64, feed-forward 1,536, vocabulary 49,152.
"""

from collections.abc import Callable

import pytest
import torch
from octavo_kernels.ops import Geometry, pick
from torch import Tensor

from tests.kernels.samplers import sample, sampling_of
from tests.kernels.steps import Row, make_case, run_attention, step_of

OPS = pick("cpu", "reference", invariant=True)
ROWS = 130
GEOMETRY = Geometry(16, 1, 3, 64, torch.float32)
HEADS = 9


def same_bits(compute: Callable[[Tensor], Tensor], width: int, every: int = 1) -> None:
    """Rows of `compute` alone, in every batch size and at shifted places are equal bit for bit."""
    x = torch.randn(ROWS, width)
    truth = torch.cat([compute(x[i : i + 1]) for i in range(len(x))])
    for size in range(1, ROWS + 1, every):
        assert torch.equal(compute(x[:size]), truth[:size])
        assert torch.equal(compute(x[-size:]), truth[-size:])
    order = torch.randperm(len(x))
    assert torch.equal(compute(x[order]), truth[order])


@pytest.mark.parametrize(("inputs", "outputs"), [(576, 960), (576, 576), (576, 3072), (1536, 576), (576, 49_152)])
def test_linear(inputs: int, outputs: int) -> None:
    weight = torch.randn(outputs, inputs)

    def compute(x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], outputs)
        OPS.linear(x, weight, None, out)
        return out

    same_bits(compute, inputs, every=1 if outputs < 10_000 else 43)


def test_rms_norm() -> None:
    weight = torch.randn(576)

    def compute(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        OPS.rms_norm(x, x * 0.37, weight, 1e-5, out)
        return out

    same_bits(compute, 576)


def test_silu_mul() -> None:
    def compute(x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], 1536)
        OPS.silu_mul(x, out)
        return out

    same_bits(compute, 3072)


def test_attention_in_any_batch() -> None:
    rows = [Row(computed, 1) for computed in (0, 5, 15, 16, 100, 127, 128, 129, 255, 256, 400, 700)] * 3
    case = make_case(OPS, rows, GEOMETRY, HEADS)
    truth = run_attention(OPS, case)
    slots = case.step.row_slot.tolist()
    q = case.q
    for first, size in [(0, 1), (11, 1), (3, 2), (0, 15), (5, 16), (7, 17), (4, 30)]:
        part = range(first, first + size)
        case.step = step_of([rows[i] for i in part], [slots[i] for i in part], case.step.table, GEOMETRY)
        case.q = q[first : first + size]
        assert torch.equal(run_attention(OPS, case), truth[first : first + size])


@pytest.mark.parametrize("chunk", [1, 7, 16, 17, 100, 300])
def test_attention_in_any_chunking(chunk: int) -> None:
    length = 300
    case = make_case(OPS, [Row(0, length), Row(250, 1)], GEOMETRY, HEADS)
    truth = run_attention(OPS, case)[:length]
    slot, q, parts = int(case.step.row_slot[0]), case.q, []
    for start in range(0, length, chunk):
        rows = [Row(start, min(chunk, length - start))]
        case.step = step_of(rows, [slot], case.step.table, GEOMETRY)
        case.q = q[start : start + rows[0].query]
        parts.append(run_attention(OPS, case))
    assert torch.equal(torch.cat(parts), truth)


def test_sampling_in_any_batch() -> None:
    slots = 20
    temperature, top_p = torch.rand(slots) + 0.5, torch.rand(slots) * 0.5 + 0.5
    sampling = sampling_of(slots, temperature=temperature, top_p=top_p, seed=torch.arange(slots), length=9)
    logits = torch.randn(slots, 49_152)
    truth = [sample(OPS, logits[i : i + 1], sampling, [i])[0] for i in range(slots)]
    assert sample(OPS, logits, sampling) == truth
    assert sample(OPS, logits[3:10], sampling, list(range(3, 10))) == truth[3:10]
