"""Row operations against float64."""

import pytest
import torch
from octavo_kernels.ops import KernelsUnavailable, pick

both_modes = pytest.mark.parametrize("invariant", [False, True])


@both_modes
@pytest.mark.parametrize("rows", [1, 15, 16, 33])
def test_linear_with_and_without_bias(rows: int, invariant: bool) -> None:
    ops = pick("cpu", invariant=invariant)
    x, weight, bias = torch.randn(rows, 123), torch.randn(41, 123), torch.randn(41)
    out = torch.empty(rows, 41)
    for b in (None, bias):
        ops.linear(x, weight, b, out)
        truth = x.double() @ weight.double().t() + (0 if b is None else b.double())
        torch.testing.assert_close(out.double(), truth, rtol=0, atol=1e-4)


@both_modes
def test_rms_norm_adds_to_the_residual_first(invariant: bool) -> None:
    ops = pick("cpu", invariant=invariant)
    x, residual, weight, out = torch.randn(19, 33), torch.randn(19, 33), torch.randn(33), torch.empty(19, 33)
    total = (x + residual).double()
    ops.rms_norm(x, residual, weight, 1e-5, out)
    truth = total / (total.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(residual.double(), total, rtol=0, atol=1e-6)
    torch.testing.assert_close(out.double(), truth, rtol=0, atol=1e-5)


@both_modes
def test_silu_mul_gates_with_the_first_half(invariant: bool) -> None:
    ops = pick("cpu", invariant=invariant)
    gate_up, out = torch.randn(19, 62), torch.empty(19, 31)
    ops.silu_mul(gate_up, out)
    gate, up = gate_up.double().chunk(2, dim=-1)
    torch.testing.assert_close(out.double(), gate * gate.sigmoid() * up, rtol=0, atol=1e-6)


def test_picking_kernels_that_cannot_run_lists_those_that_can() -> None:
    with pytest.raises(KernelsUnavailable, match="'triton' do not run on device 'cpu'; these do: reference"):
        pick("cpu", "triton")
    with pytest.raises(KernelsUnavailable, match="these do: none"):
        pick("meta")


def test_the_best_kernels_are_picked_when_none_are_named() -> None:
    ops = pick("cpu")
    assert (ops.name, ops.layout, ops.batch_invariant, ops.needs_zeroed_pages) == (
        "reference",
        "ref.token_dim",
        False,
        False,
    )
    assert pick("cpu", invariant=True).batch_invariant
