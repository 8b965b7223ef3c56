"""Batch invariance: a row's bits do not depend on what else is in the batch, where it stands, or how it is chunked.

Shapes are SmolLM2-135M's: hidden 576, 9 query heads over 3 KV heads of 64, feed-forward 1,536, vocabulary 49,152.
"""

from collections.abc import Callable

import pytest
import torch
from octavo_kernels.ops import Geometry, Ops
from torch import Tensor

from tests.kernels.implementations import invariant_ops
from tests.kernels.samplers import sample, sampling_of
from tests.kernels.steps import Row, count, make_case, run_attention, step_of

ROWS = 130
GEOMETRY = Geometry(16, 1, 3, 64, "float32")
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


@invariant_ops
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 960), (576, 576), (576, 3072), (1536, 576), (576, 49_152)])
def test_linear(ops: Ops, inputs: int, outputs: int) -> None:
    weight = ops.pack(torch.randn(outputs, inputs).numpy(), None, "float32")

    def compute(x: Tensor) -> Tensor:
        out = torch.empty(len(x), outputs)
        ops.linear(count(len(x)), x, weight, out)
        return out

    same_bits(compute, inputs, every=1 if outputs < 10_000 else 43)


@invariant_ops
def test_rms_norm(ops: Ops) -> None:
    weight = torch.randn(576)

    def compute(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        ops.rms_norm(count(len(x)), x, x * 0.37, weight, 1e-5, out)
        return out

    same_bits(compute, 576)


@invariant_ops
def test_gated_linear(ops: Ops) -> None:
    gate, up = (ops.pack(torch.randn(1536, 576).numpy(), None, "float32") for _ in range(2))

    def compute(x: Tensor) -> Tensor:
        out = torch.empty(len(x), 1536)
        ops.gated_linear(count(len(x)), x, gate, up, out)
        return out

    same_bits(compute, 576, every=7)


@invariant_ops
def test_silu_mul(ops: Ops) -> None:
    def compute(x: Tensor) -> Tensor:
        out = torch.empty(len(x), 1536)
        ops.silu_mul(count(len(x)), x, out)
        return out

    same_bits(compute, 3072)


@invariant_ops
def test_attention_in_any_batch(ops: Ops) -> None:
    rows = [Row(computed, 1) for computed in (0, 5, 15, 16, 100, 127, 128, 129, 255, 256, 400, 700)] * 3
    case = make_case(ops, rows, GEOMETRY, HEADS)
    truth = run_attention(ops, case)
    slots = case.step.row_slot.tolist()
    q = case.q
    for first, size in [(0, 1), (11, 1), (3, 2), (0, 15), (5, 16), (7, 17), (4, 30)]:
        part = range(first, first + size)
        case.step = step_of([rows[i] for i in part], [slots[i] for i in part], case.step.table, GEOMETRY)
        case.q = q[first : first + size]
        assert torch.equal(run_attention(ops, case), truth[first : first + size])


@invariant_ops
@pytest.mark.parametrize("chunk", [1, 7, 16, 17, 100, 300])
def test_attention_in_any_chunking(ops: Ops, chunk: int) -> None:
    length = 300
    case = make_case(ops, [Row(0, length), Row(250, 1)], GEOMETRY, HEADS)
    truth = run_attention(ops, case)[:length]
    slot, q, parts = int(case.step.row_slot[0]), case.q, []
    for start in range(0, length, chunk):
        rows = [Row(start, min(chunk, length - start))]
        case.step = step_of(rows, [slot], case.step.table, GEOMETRY)
        case.q = q[start : start + rows[0].query]
        parts.append(run_attention(ops, case))
    assert torch.equal(torch.cat(parts), truth)


@invariant_ops
def test_sampling_in_any_batch(ops: Ops) -> None:
    slots = 20
    temperature, top_p = torch.rand(slots) + 0.5, torch.rand(slots) * 0.5 + 0.5
    sampling = sampling_of(slots, temperature=temperature, top_p=top_p, seed=torch.arange(slots), length=9)
    logits = torch.randn(slots, 49_152)
    truth = [sample(ops, logits[i : i + 1], sampling, [i])[0] for i in range(slots)]
    assert sample(ops, logits, sampling) == truth
    assert sample(ops, logits[3:10], sampling, list(range(3, 10))) == truth[3:10]
