"""Linear layers of the C kernels, in every variant of this processor, against float64."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from octavo_kernels import cpu
from octavo_kernels.cpu.library import variants
from octavo_kernels.ops import Blocks, Ops, Weight

from tests.kernels.cached import from_bfloat16, to_bfloat16
from tests.kernels.empty import empty_step

SHAPES = [(1, 64, 64), (5, 100, 80), (13, 33, 112), (33, 37, 96), (17, 96, 576), (65, 960, 256), (300, 70, 36)]
FORMATS = ["float32", "bfloat16", "int8", "int4", "int8_groups"]
STEP = {"float32": 2e-6, "bfloat16": 2**-7, "int8": 0.012, "int4": 0.14, "int8_groups": 0.012}
"""Relative to an input or weight of about 3, the largest error of one rounding of either."""
GGUF = {"Q4_0": "int4", "Q4_1": "int4", "Q8_0": "int8_groups"}

pytestmark = pytest.mark.skipif(not cpu.is_built(), reason="the C kernels are not built here")


@pytest.fixture(params=variants())
def ops(request: pytest.FixtureRequest) -> Ops:
    return cpu.build(False, 2, request.param)


def multiply(ops: Ops, x: np.ndarray, weight: Weight, *, out_dtype: str = "float32") -> np.ndarray:
    out: np.ndarray = ops.new_buffer((len(x), weight.outputs), out_dtype)
    ops.linear(np.array([len(x)], np.int32), x, weight, out)
    return out


def unpacked(ops: Ops, weight: Weight) -> np.ndarray:
    """The matrix that a weight stands for, float32 [outputs, inputs]."""
    out: np.ndarray = ops.new_buffer((weight.outputs, weight.inputs), "float32")
    ops.embed(np.array([weight.outputs], np.int32), weight, np.arange(weight.outputs, dtype=np.int32), out)
    return out


def buffer_of(ops: Ops, x: np.ndarray, dtype: str) -> np.ndarray:
    buffer: np.ndarray = ops.new_buffer(x.shape, dtype)
    buffer[:] = x if dtype == "float32" else to_bfloat16(x)
    return buffer


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_linear_layer_is_the_product_with_its_unpacked_weight(ops: Ops, format: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    for rows, outputs, inputs in SHAPES:
        matrix, bias = rng.standard_normal((outputs, inputs), np.float32), rng.standard_normal(outputs, np.float32)
        x = buffer_of(ops, rng.standard_normal((rows, inputs), np.float32), dtype)
        weight = ops.pack(matrix, bias, format)
        exact_x = (x if dtype == "float32" else from_bfloat16(x)).astype(np.float64)
        truth = exact_x @ unpacked(ops, weight).astype(np.float64).T + bias
        rounded = 2e-6 if format == "float32" or (format, dtype) == ("bfloat16", "bfloat16") else STEP["int8"]
        error = np.abs(multiply(ops, x, weight) - truth).max()
        assert error <= rounded * 4 * np.sqrt(inputs), (rows, outputs, inputs)


@pytest.mark.parametrize("format", FORMATS)
def test_packing_rounds_each_weight_once(ops: Ops, format: str) -> None:
    matrix = np.random.default_rng(2).standard_normal((70, 100), np.float32)
    assert np.abs(unpacked(ops, ops.pack(matrix, None, format)) - matrix).max() <= STEP[format] * 2


@pytest.mark.parametrize("kind", GGUF)
def test_blocks_of_a_gguf_file_keep_their_values(ops: Ops, kind: str) -> None:
    matrix = np.random.default_rng(3).standard_normal((70, 96), np.float32)
    blocks = quantize(matrix, GGMLQuantizationType[kind])
    weight = ops.pack(Blocks(kind, blocks), None, GGUF[kind])
    truth = dequantize(blocks, GGMLQuantizationType[kind])
    np.testing.assert_allclose(unpacked(ops, weight), truth, rtol=0, atol=1e-6)


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_has_the_same_bits_in_any_batch_and_on_any_number_of_threads(format: str) -> None:
    rng = np.random.default_rng(4)
    for variant in variants():
        ops, alone, many = (cpu.build(False, threads, variant) for threads in (2, 1, 7))
        weight = ops.pack(rng.standard_normal((100, 96), np.float32), None, format)
        x = buffer_of(ops, rng.standard_normal((300, 96), np.float32), "bfloat16")
        together = multiply(ops, x, weight)
        for start, end in ((0, 1), (7, 8), (4, 6), (9, 12), (16, 20), (50, 55), (3, 20), (31, 64), (255, 300), (0, 97)):
            for other in (alone, many):
                assert (multiply(other, x[start:end], weight) == together[start:end]).all(), (variant, start, end)


@pytest.mark.parametrize("format", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [1.0, 1e-20, 1e-38])
def test_the_smallest_numbers_and_those_that_are_none_have_the_same_bits_alone_and_in_a_batch(
    ops: Ops, format: str, size: float
) -> None:
    rng = np.random.default_rng(9)
    weight = ops.pack(rng.standard_normal((70, 100), np.float32) * np.float32(size), None, format)
    values = rng.standard_normal((40, 100), np.float32) * np.exp2(rng.integers(-30, 30, (40, 100))).astype(np.float32)
    values[3], values[5, 0], values[6, 1], values[7, 2:4] = 1e-39, np.inf, np.nan, (np.inf, -np.inf)
    x = buffer_of(ops, values, format)
    together = multiply(ops, x, weight)
    assert np.isnan(together[6]).all()
    assert np.isfinite(together[8:]).all()
    for row in range(len(x)):
        np.testing.assert_array_equal(multiply(ops, x[row : row + 1], weight)[0], together[row])


@pytest.mark.parametrize("format", FORMATS)
def test_rows_past_the_count_are_neither_read_nor_written(ops: Ops, format: str) -> None:
    weight = ops.pack(np.ones((40, 64), np.float32), None, format)
    x, out = ops.new_buffer((40, 64), "float32"), ops.new_buffer((40, 40), "float32")
    x[:7], x[7:], out[:] = 1, np.nan, -5
    ops.linear(np.array([7], np.int32), x, weight, out)
    np.testing.assert_allclose(out[:7], 64, rtol=0.01)
    assert (out[7:] == -5).all()


def test_results_are_rounded_to_bfloat16_where_the_buffer_is(ops: Ops) -> None:
    rng = np.random.default_rng(5)
    weight = ops.pack(rng.standard_normal((40, 64), np.float32), None, "bfloat16")
    x = buffer_of(ops, rng.standard_normal((9, 64), np.float32), "bfloat16")
    assert (multiply(ops, x, weight, out_dtype="bfloat16") == to_bfloat16(multiply(ops, x, weight))).all()


def test_int8_keeps_a_row_of_zeros_zero(ops: Ops) -> None:
    weight = ops.pack(np.random.default_rng(6).standard_normal((40, 64), np.float32), None, "int8")
    assert (multiply(ops, ops.new_buffer((3, 64), "bfloat16"), weight) == 0).all()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_not_taken_for_one(ops: Ops, format: str, bad: float) -> None:
    weight = ops.pack(np.ones((40, 100), np.float32), None, format)
    values = np.ones((9, 100), np.float32)
    values[2, 5] = values[7, 99] = bad
    out = multiply(ops, buffer_of(ops, values, "bfloat16"), weight)
    assert not np.isfinite(out[[2, 7]]).any()
    np.testing.assert_allclose(out[[0, 1, 3, 8]], 100, rtol=0.02)


def test_a_recorded_layer_reads_the_count_when_it_is_replayed(ops: Ops) -> None:
    rows, weight = np.array([1], np.int32), ops.pack(np.ones((32, 64), np.float32), None, "float32")
    x, out = ops.new_buffer((4, 64), "float32"), ops.new_buffer((4, 32), "float32")
    replay = ops.capture(empty_step(), lambda: ops.linear(rows, x, weight, out))
    assert not out.any()
    x[:], rows[0] = 1, 3
    replay()
    assert (out[:3] == 64).all()
    assert not out[3].any()


@pytest.mark.parametrize("format", FORMATS)
def test_a_gated_layer_is_silu_of_one_product_times_another(ops: Ops, format: str) -> None:
    rng = np.random.default_rng(7)
    for rows, outputs, inputs in SHAPES:
        matrices = (rng.standard_normal((2, outputs, inputs)) / np.sqrt(inputs)).astype(np.float32)
        gate, up = (ops.pack(matrix, None, format) for matrix in matrices)
        x = buffer_of(ops, rng.standard_normal((rows, inputs), np.float32), "bfloat16")
        out = ops.new_buffer((rows, outputs), "float32")
        ops.gated_linear(np.array([rows], np.int32), x, gate, up, out)
        a, b = multiply(ops, x, gate).astype(np.float64), multiply(ops, x, up).astype(np.float64)
        np.testing.assert_allclose(out, a / (1 + np.exp(-a)) * b, rtol=2e-6, atol=1e-7)
