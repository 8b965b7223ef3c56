"""Row operations against float64."""

import numpy as np
import pytest
import torch
from octavo_kernels.choice import KernelsUnavailable, pick
from octavo_kernels.ops import Ops, Weight
from torch import Tensor

from tests.kernels.empty import empty_step
from tests.kernels.implementations import CPU, build, every_ops
from tests.kernels.steps import count, int32

PAST = -7.0
"""In all rows that do not count."""


def past(rows: int, width: int) -> Tensor:
    """Room for some rows more."""
    return torch.full((rows + 3, width), PAST)


def packed(ops: Ops, matrix: Tensor, bias: Tensor | None = None, format: str = "float32") -> Weight:
    return ops.pack(matrix.numpy(), None if bias is None else bias.numpy(), format)


@every_ops
@pytest.mark.parametrize("rows", [1, 15, 16, 33])
def test_linear_with_and_without_bias(ops: Ops, rows: int) -> None:
    x, weight, bias = torch.randn(rows + 1, 123), torch.randn(41, 123), torch.randn(41)
    out = past(rows, 41)
    for b in (None, bias):
        ops.linear(count(rows), x, packed(ops, weight, b), out)
        truth = x[:rows].double() @ weight.double().t() + (0 if b is None else b.double())
        torch.testing.assert_close(out[:rows].double(), truth, rtol=0, atol=1e-4)
        assert (out[rows:] == PAST).all()


@every_ops
def test_a_weight_is_made_again_from_its_parts(ops: Ops) -> None:
    x, first, second = torch.randn(5, 96), torch.empty(5, 70), torch.empty(5, 70)
    for format in ops.formats:
        weight = packed(ops, torch.randn(70, 96), torch.randn(70), format)
        parts = {name: part.copy() for name, part in weight.parts.items()}
        again = ops.unpack(weight.format, weight.outputs, weight.inputs, parts)
        ops.linear(count(5), x, weight, first)
        ops.linear(count(5), x, again, second)
        assert torch.equal(first, second)
        assert weight.num_bytes == again.num_bytes == sum(part.nbytes for part in parts.values())
        for outputs, wrong in ((71, parts), (70, parts | {"data": parts["data"][1:]}), (70, {"bias": parts["bias"]})):
            with pytest.raises(ValueError, match=rf"{format} weight \[{outputs}, 96\]"):
                ops.unpack(format, outputs, 96, wrong)


@every_ops
def test_rows_are_taken_by_their_index_in_the_dtype_of_the_buffer(ops: Ops) -> None:
    matrix, index = torch.randn(50, 33).bfloat16(), int32(7, 0, 49, 7, 1)
    for format in ("float32", "bfloat16"):
        out = past(4, 33)
        ops.embed(count(4), packed(ops, matrix.float(), format=format), index, out)
        assert torch.equal(out[:4], matrix[index[:4]].float())
        assert (out[4:] == PAST).all()
    out = past(4, 33)
    ops.take_rows(count(4), matrix, index, out)
    assert torch.equal(out[:4], matrix[index[:4]].float())
    assert (out[4:] == PAST).all()


@every_ops
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_adds_to_the_residual_first(ops: Ops, dtype: torch.dtype) -> None:
    x, residual, weight = torch.randn(20, 33).to(dtype), torch.randn(20, 33), torch.randn(33)
    out, before = past(16, 33).to(dtype), residual.clone()
    total = (x[:19] + residual[:19]).double()
    ops.rms_norm(count(19), x, residual, weight, 1e-5, out)
    truth = total / (total.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(residual[:19].double(), total, rtol=0, atol=1e-6)
    torch.testing.assert_close(out.double(), truth, rtol=2**-8 if dtype == torch.bfloat16 else 0, atol=1e-5)
    assert torch.equal(residual[19:], before[19:])


@every_ops
def test_rms_norm_of_the_residual_alone_leaves_it_as_it_is(ops: Ops) -> None:
    residual, weight, out = torch.randn(3, 33), torch.randn(33), torch.empty(3, 33)
    before = residual.clone()
    ops.rms_norm(count(3), None, residual, weight, 1e-5, out)
    wide = residual.double()
    truth = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(out.double(), truth, rtol=0, atol=1e-5)
    assert torch.equal(residual, before)


@every_ops
def test_a_gated_layer_is_silu_of_one_product_times_another(ops: Ops) -> None:
    x, gate, up, out = torch.randn(20, 96), torch.randn(41, 96) / 10, torch.randn(41, 96) / 10, past(19, 41)
    ops.gated_linear(count(19), x, packed(ops, gate), packed(ops, up), out)
    a, b = (x[:19].double() @ matrix.double().t() for matrix in (gate, up))
    torch.testing.assert_close(out[:19].double(), a * a.sigmoid() * b, rtol=0, atol=1e-5)
    assert (out[19:] == PAST).all()


@every_ops
def test_silu_mul_gates_with_the_first_half(ops: Ops) -> None:
    gate_up, out = torch.randn(20, 62), past(19, 31)
    ops.silu_mul(count(19), gate_up, out)
    gate, up = gate_up[:19].double().chunk(2, dim=-1)
    torch.testing.assert_close(out[:19].double(), gate * gate.sigmoid() * up, rtol=0, atol=2e-6)
    assert (out[19:] == PAST).all()


@every_ops
def test_no_rows_are_no_work(ops: Ops) -> None:
    x, out, none = torch.randn(4, 32), past(1, 16), count(0)
    ops.linear(none, x, packed(ops, torch.randn(16, 32)), out)
    ops.silu_mul(none, x, out)
    ops.rms_norm(none, None, out.clone(), torch.ones(16), 1e-5, out)
    ops.take_rows(none, torch.randn(4, 16), int32(0), out)
    assert (out == PAST).all()


@every_ops
def test_what_is_captured_reads_its_count_each_time_it_is_replayed(ops: Ops) -> None:
    rows, x, normed, out = count(0), ops.new_buffer((4, 32), "float32"), *(torch.zeros(4, n) for n in (32, 16))

    def body() -> None:
        ops.rms_norm(rows, None, x, torch.ones(32), 1e-5, normed)
        ops.silu_mul(rows, normed, out)

    replay = ops.capture(empty_step(), body)
    np.asarray(x)[:] = 1
    replay()
    assert not out.any()
    rows[0] = 3
    replay()
    assert out[:3].all()
    assert not out[3].any()


def test_picking_kernels_that_cannot_run_lists_those_that_can() -> None:
    with pytest.raises(KernelsUnavailable, match=r"'abacus' do not run on device 'cpu'; these do: .*reference"):
        pick("cpu", "abacus")
    with pytest.raises(KernelsUnavailable, match="no kernels compute in auto on device 'meta'; none do"):
        pick("meta")
    with pytest.raises(KernelsUnavailable, match=r"these do: .*reference in float32, bfloat16, float16"):
        pick("cpu", dtype="int3")


def test_the_best_kernels_that_compute_in_the_dtype_are_picked_when_none_are_named() -> None:
    assert pick("cpu").name == ("cpu" if CPU else "reference")
    assert pick("cpu", dtype="float16").name == "reference"
    assert pick("cpu", invariant=True).batch_invariant


def test_the_reference_computes_with_as_many_threads_as_it_is_told() -> None:
    for threads in (1, 2):
        pick("cpu", "reference", threads=threads)
        assert torch.get_num_threads() == threads


def test_the_reference_says_what_it_is() -> None:
    ops = pick("cpu", "reference")
    assert (ops.layout, ops.batch_invariant, ops.needs_zeroed_pages) == ("ref.token_dim", False, False)
    assert pick("cpu", "reference", invariant=True).dtypes == ("float32",)


@pytest.mark.parametrize("name", CPU)
def test_the_c_kernels_prefer_bfloat16_where_the_processor_multiplies_it(name: str) -> None:
    ops = build(name)
    has_bfloat16 = name in ("cpu-amx", "cpu-avx512bf16")
    assert ops.dtypes == (("bfloat16", "float32") if has_bfloat16 else ("float32", "bfloat16"))


@every_ops
def test_NU02_a_norm_of_numbers_that_half_precision_does_not_have_is_summed_in_float32(ops: Ops) -> None:
    """7e4 in a row: above all of float16; its square, and sums of many smaller ones, above more."""
    for name in ops.dtypes:
        dtype = getattr(torch, name)
        x = torch.zeros(3, 64, dtype=dtype)
        residual, out = torch.randn(3, 64), torch.empty(3, 64, dtype=dtype)
        residual[0, 5], residual[1] = 7e4, 300.0
        x[2, 7] = 6e4
        residual[2, 7] = 1e4
        truth = (residual.double() + x.double()) * (residual.double() + x.double()).square().mean(-1, True).rsqrt()
        ops.rms_norm(count(3), x, residual, torch.ones(64), 1e-5, out)
        torch.testing.assert_close(out.double(), truth, rtol=1e-2, atol=1e-6)
        assert residual[2, 7] > 65504
