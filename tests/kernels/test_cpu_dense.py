"""Row operations of the C kernels, in every variant of this processor, against float64."""

from itertools import product

import numpy as np
import pytest
from octavo_kernels import cpu
from octavo_kernels.cpu.library import variants
from octavo_kernels.ops import Ops

from tests.kernels.cached import from_bfloat16, to_bfloat16

WIDTHS = [1, 3, 15, 16, 17, 31, 33, 64, 123, 576, 1001]
DTYPES = ["float32", "bfloat16"]
ROUNDING = {"float32": 2e-6, "bfloat16": 2**-8}
"""The largest relative error of a result; float32 sums add a little to it."""
CANARY = 77.0

pytestmark = pytest.mark.skipif(not cpu.is_built(), reason="the C kernels are not built here")


@pytest.fixture(params=variants())
def ops(request: pytest.FixtureRequest) -> Ops:
    return cpu.build(False, 2, request.param)


def values_of(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == np.float32 else from_bfloat16(x)


def put(ops: Ops, x: np.ndarray, dtype: str) -> np.ndarray:
    """Rows in a buffer that is wider than they are and has a row more; all the rest are canaries."""
    rows, width = x.shape
    buffer: np.ndarray = ops.new_buffer((rows + 1, width + 3), dtype)
    full = np.full(buffer.shape, CANARY, np.float32)
    full[:rows, :width] = x
    buffer[:] = full if dtype == "float32" else to_bfloat16(full)
    return buffer


def assert_close(buffer: np.ndarray, truth: np.ndarray, rounding: float) -> None:
    """The rows within rounding of the truth, and every canary alive."""
    rows, width = truth.shape
    values = values_of(buffer)
    np.testing.assert_allclose(values[:rows, :width], truth, rtol=rounding, atol=rounding / 8)
    assert (values[rows:] == CANARY).all()
    assert (values[:, width:] == CANARY).all()


def count(rows: int) -> np.ndarray:
    return np.array([rows], np.int32)


def normal(*shape: int, spread: float = 1) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * spread).astype(np.float32)


@pytest.mark.parametrize(("x_dtype", "residual_dtype", "out_dtype"), list(product(DTYPES, DTYPES, DTYPES)))
def test_rms_norm_adds_to_the_residual_first(ops: Ops, x_dtype: str, residual_dtype: str, out_dtype: str) -> None:
    for width in WIDTHS:
        x, residual = put(ops, normal(5, width), x_dtype), put(ops, normal(6, width)[:5] * 3, residual_dtype)
        weight, out = normal(width), put(ops, np.zeros((5, width)), out_dtype)
        total = values_of(x)[:5, :width].astype(np.float64) + values_of(residual)[:5, :width]
        ops.rms_norm(count(5), x[:, :width], residual[:, :width], weight, 1e-5, out[:, :width])
        assert_close(residual, total, ROUNDING[residual_dtype])
        kept = values_of(residual)[:5, :width].astype(np.float64)  # what is normed is what was kept
        truth = kept / np.sqrt((kept**2).mean(-1, keepdims=True) + 1e-5) * weight
        assert_close(out, truth, ROUNDING[out_dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_without_x_leaves_the_residual_alone(ops: Ops, dtype: str) -> None:
    for width in WIDTHS:
        residual, out = put(ops, normal(4, width), dtype), put(ops, np.zeros((4, width)), dtype)
        before = residual.copy()
        ops.rms_norm(count(4), None, residual[:, :width], np.ones(width, np.float32), 1e-6, out[:, :width])
        assert (residual == before).all()
        kept = values_of(before)[:4, :width].astype(np.float64)
        assert_close(out, kept / np.sqrt((kept**2).mean(-1, keepdims=True) + 1e-6), ROUNDING[dtype])


@pytest.mark.parametrize(("dtype", "out_dtype"), list(product(DTYPES, DTYPES)))
def test_silu_mul_gates_with_the_first_half(ops: Ops, dtype: str, out_dtype: str) -> None:
    for width in WIDTHS:
        gate_up, out = put(ops, normal(7, 2 * width, spread=4), dtype), put(ops, np.zeros((7, width)), out_dtype)
        gate, up = np.split(values_of(gate_up)[:7, : 2 * width].astype(np.float64), 2, axis=-1)
        ops.silu_mul(count(7), gate_up[:, : 2 * width], out[:, :width])
        assert_close(out, gate / (1 + np.exp(-gate)) * up, ROUNDING[out_dtype])


def test_silu_is_right_from_one_end_of_the_exponential_to_the_other(ops: Ops) -> None:
    gate = np.concatenate([np.linspace(-87, 87, 40_001), np.linspace(-1e-3, 1e-3, 999), [-1e30, 1e30, -0.0]])
    gate_up = np.concatenate([gate, np.ones_like(gate)]).astype(np.float32)[None]
    out = np.zeros((1, len(gate)), np.float32)
    ops.silu_mul(count(1), gate_up, out)
    exact = gate_up[0, : len(gate)].astype(np.float64)
    with np.errstate(over="ignore"):
        truth = exact / (1 + np.exp(-exact))
    np.testing.assert_allclose(out[0], truth, rtol=1e-6, atol=1e-7)


def test_what_is_not_a_number_stays_in_its_row(ops: Ops) -> None:
    for dtype in DTYPES:
        gate_up, out = put(ops, normal(3, 2 * 37), dtype), put(ops, np.zeros((3, 37)), dtype)
        gate_up[1, 5] = np.nan if dtype == "float32" else 0x7FC0
        ops.silu_mul(count(3), gate_up[:, : 2 * 37], out[:, :37])
        assert [list(np.flatnonzero(np.isnan(row))) for row in values_of(out)[:3]] == [[], [5], []]
        residual, normed = put(ops, normal(3, 37), dtype), put(ops, np.zeros((3, 37)), dtype)
        weight = np.ones(37, np.float32)
        ops.rms_norm(count(3), gate_up[:, :37], residual[:, :37], weight, 1e-6, normed[:, :37])
        assert np.isnan(values_of(normed)[:3, :37]).all(axis=-1).tolist() == [False, True, False]
        assert np.isnan(values_of(normed)[:3, :37]).any(axis=-1).tolist() == [False, True, False]


@pytest.mark.parametrize(("dtype", "out_dtype"), list(product(DTYPES, DTYPES)))
def test_take_rows_copies_and_converts(ops: Ops, dtype: str, out_dtype: str) -> None:
    for width in WIDTHS:
        source, out = put(ops, normal(9, width), dtype), put(ops, np.zeros((4, width)), out_dtype)
        index = np.array([8, 0, 3, 3], np.int32)
        ops.take_rows(count(4), source[:, :width], index, out[:, :width])
        taken = values_of(source)[index, :width]
        rounded = taken if out_dtype == "float32" else values_of(to_bfloat16(taken))
        assert_close(out, rounded, 0)


def test_rows_past_the_count_are_not_touched(ops: Ops) -> None:
    x, residual, out = (put(ops, np.full((6, 20), CANARY), "float32") for _ in range(3))
    x[:2, :20] = residual[:2, :20] = 1
    ops.rms_norm(count(2), x[:, :20], residual[:, :20], np.ones(20, np.float32), 0.0, out[:, :20])
    assert_close(out, np.ones((2, 20)), 1e-6)
    assert_close(residual, np.full((2, 20), 2.0), 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", variants())
def test_a_row_has_the_same_bits_in_any_batch_and_with_any_number_of_threads(name: str, dtype: str) -> None:
    one, three = cpu.build(False, 1, name), cpu.build(False, 3, name)
    x, residual = put(one, normal(40, 123), dtype), put(one, normal(41, 123)[:40], dtype)
    weight = normal(123)

    def norm(ops: Ops, first: int, end: int) -> np.ndarray:
        part, out = residual[first:end].copy(), np.zeros_like(residual[first:end])
        ops.rms_norm(count(len(part)), x[first:end, :123], part[:, :123], weight, 1e-5, out[:, :123])
        gated = np.zeros((len(part), 61), out.dtype)
        ops.silu_mul(count(len(part)), part[:, :122], gated)
        return np.concatenate([part[:, :123], out[:, :123], gated], axis=-1)

    together = norm(one, 0, 40)
    assert (norm(three, 0, 40) == together).all()
    assert all((norm(one, i, i + 1) == together[i]).all() for i in range(40))


@pytest.mark.parametrize("name", variants())
def test_variants_that_round_to_bfloat16_in_other_ways_agree(name: str) -> None:
    some = cpu.build(False, 1, name)
    edges = np.array(
        [1, 1 + 2**-9, 1 + 3 * 2**-9, -1 - 2**-9, 3e38, 3.4e38, np.inf, -np.inf, 0, -0.0, 1e-37], np.float32
    )
    wide = np.resize(edges, (1, 64))
    out = np.zeros((1, 64), np.uint16)
    some.take_rows(count(1), wide, np.zeros(1, np.int32), out)
    assert (out == to_bfloat16(wide)).all()
