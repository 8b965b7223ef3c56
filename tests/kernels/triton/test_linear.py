"""Linear layers in Triton. `linear_cases.py` has all shapes and formats; a part of them is run here."""

import numpy as np
import pytest
import torch
from octavo_kernels.int4 import AWQ_ORDER, Int4, below, from_awq, from_gptq
from octavo_kernels.ops import Blocks, Ops, Weight
from octavo_kernels.triton import build as build_triton
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.linear import Linear
from octavo_kernels.triton.paper import Paper
from octavo_kernels.triton.tuning import TILES
from torch import Tensor

from tests.kernels.implementations import build
from tests.kernels.steps import count
from tests.kernels.triton.linear_cases import (
    BLOCKS,
    DTYPES,
    FORMATS,
    GROUPS,
    Case,
    all_cases,
    check,
    matrix_of,
    random_int4,
    unpacked,
)
from tests.kernels.triton.packing import words_of

STEP = {"float32": 1e-7, "bfloat16": 2**-8, "float16": 2**-11, "fp8": 2**-4, "int8": 0.004, "int8_groups": 0.004}
"""Half the distance of neighbours of a format, relative to the largest number of a row or group."""
PART = 13
"""One case in so many; odd, so that every second one is gated."""


@pytest.fixture
def ops() -> Ops:
    return build("triton")


def multiply(ops: Ops, x: Tensor, weight: Weight, *, dtype: torch.dtype = torch.float32, rows: int = 0) -> Tensor:
    """The first rows of x, or all, times a weight."""
    out = torch.zeros(len(x), weight.outputs, dtype=dtype)
    ops.linear(count(rows or len(x)), x, weight, out)
    return out[: rows or len(x)]


def random(rows: int, width: int, dtype: str = "bfloat16") -> Tensor:
    return torch.randn(rows, width).to(getattr(torch, dtype))


def embedded(ops: Ops, weight: Weight) -> Tensor:
    """All rows of a weight, as an embedding."""
    out = torch.zeros(weight.outputs, weight.inputs)
    ops.embed(count(weight.outputs), weight, torch.arange(weight.outputs, dtype=torch.int32), out)
    return out


@pytest.mark.parametrize("format", FORMATS)
def test_a_layer_is_the_product_with_its_unpacked_weight_in_float64(format: str) -> None:
    cases = [case for case in all_cases() if case.format == format][::PART]
    assert len(cases) >= 12
    assert {case.is_gated for case in cases} == {True, False}
    for case in cases:
        assert check(case) <= case.bound, case


def test_the_largest_tile_and_the_smallest_are_among_the_cases() -> None:
    rows = {case.rows for case in all_cases()}
    assert min(rows) == 1
    assert all(tiles[0].rows < 17 and tiles[-1].rows <= max(rows) for tiles in TILES.values())


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_has_the_same_bits_alone_in_a_batch_and_in_a_launch_of_another_size(format: str) -> None:
    invariant = build_triton("cpu", True)
    weight = invariant.pack(torch.randn(70, 200).numpy(), None, format)
    x = random(140, 200)
    together = multiply(invariant, x, weight)
    for first, size in ((0, 1), (7, 3), (130, 10), (60, 17)):
        part = x[first : first + size]
        assert torch.equal(multiply(invariant, part, weight), together[first : first + size])
        assert torch.equal(multiply(invariant, x, weight, rows=first + size)[first:], together[first : first + size])


@pytest.mark.parametrize("format", FORMATS)
def test_tiles_of_any_size_add_in_one_order(ops: Ops, format: str) -> None:
    weight = ops.pack(torch.randn(70, 200).numpy(), None, format)
    x = random(140, 200)
    small, middle, large = (multiply(ops, x[:size], weight, rows=3) for size in (16, 100, 140))
    torch.testing.assert_close(small, middle, rtol=0, atol=2e-5)
    assert torch.equal(middle, large)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_spoils_its_own_row_alone(ops: Ops, format: str, bad: float) -> None:
    weight = ops.pack(np.ones((40, 100), np.float32), None, format)
    x = torch.ones(9, 100).bfloat16()
    x[2, 5] = x[7, 99] = bad
    out = multiply(ops, x, weight)
    assert not out[[2, 7]].isfinite().any()
    torch.testing.assert_close(out[[0, 1, 3, 8]], torch.full((4, 40), 100.0), rtol=0.01, atol=0)


@pytest.mark.parametrize("format", FORMATS)
def test_results_are_rounded_once_to_the_dtype_of_their_buffer(ops: Ops, format: str) -> None:
    weight, x = ops.pack(torch.randn(40, 64).numpy(), None, format), random(9, 64)
    wide = multiply(ops, x, weight)
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(multiply(ops, x, weight, dtype=dtype), wide.to(dtype))


def test_int8_keeps_a_row_of_zeros_zero(ops: Ops) -> None:
    weight = ops.pack(torch.randn(40, 64).numpy(), None, "int8")
    assert not multiply(ops, torch.zeros(3, 64), weight).any()


def test_columns_of_a_wider_buffer_are_rows_of_activations_too(ops: Ops) -> None:
    x, weight, out = random(5, 200), ops.pack(torch.randn(40, 64).numpy(), None, "int8"), torch.zeros(5, 90)
    ops.linear(count(5), x[:, 100:164], weight, out[:, 7:47])
    assert torch.equal(out[:, 7:47], multiply(ops, x[:, 100:164].contiguous(), weight))
    assert not out[:, :7].any()
    assert not out[:, 47:].any()


@pytest.mark.parametrize("differ", ["format", "order of inputs"])
def test_gates_that_are_not_like_what_they_gate_are_multiplied_apart(ops: Ops, differ: str) -> None:
    x, out, rng = random(6, 64), torch.zeros(6, 40), np.random.default_rng(2)
    if differ == "format":
        gate, up = (ops.pack((torch.randn(40, 64) / 8).numpy(), None, format) for format in ("int4", "int8_groups"))
    else:
        gate, up = (ops.pack(random_int4(rng, 40, 64, 32, in_order=False), None, "int4") for _ in range(2))
    ops.gated_linear(count(6), x, gate, up, out)
    a, b = multiply(ops, x, gate), multiply(ops, x, up)
    torch.testing.assert_close(out, torch.nn.functional.silu(a) * b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_library_that_multiplies_instead_gives_the_same_but_for_rounding(ops: Ops, dtype: str) -> None:
    layers = Linear(Launcher(Paper()))
    layers.has_library = True  # as on a GPU; here it is torch's own
    x, bias = random(9, 64, dtype), torch.randn(40).numpy()
    weight, gate, up = (ops.pack((torch.randn(40, 64) / 8).numpy(), b, dtype) for b in (bias, None, None))
    ours, theirs = torch.zeros(4, 9, 40, dtype=x.dtype).split(2)
    for of, out in ((Linear(Launcher(Paper())), ours), (layers, theirs)):
        of.linear(count(9), x, weight, out[0])
        of.gated_linear(count(9), x, gate, up, out[1])
    scale = {"float32": 1e-6, "bfloat16": 2**-7, "float16": 2**-10}[dtype]
    torch.testing.assert_close(ours, theirs, rtol=scale * 2, atol=scale * 4)
    assert theirs.all()


@pytest.mark.parametrize("format", [*STEP, "int4"])
def test_packing_rounds_each_weight_once(ops: Ops, format: str) -> None:
    matrix = torch.randn(70, 100)
    error = (embedded(ops, ops.pack(matrix.numpy(), None, format)) - matrix).abs()
    if format == "int4":
        groups = torch.nn.functional.pad(matrix, (0, 28), value=torch.nan).view(70, 4, 32)
        span = groups.nan_to_num(-9).amax(-1) - groups.nan_to_num(9).amin(-1)
        bound = span.repeat_interleave(32, 1)[:, :100] / 30 + 0.003
    else:
        bound = matrix.abs().amax(1, keepdim=True) * STEP[format]
    assert (error <= bound).all()


@pytest.mark.parametrize("source", ["floats", *BLOCKS, *GROUPS])
def test_an_embedding_has_the_values_that_its_parts_stand_for(ops: Ops, source: str) -> None:
    rng = np.random.default_rng(1)
    for format in FORMATS if source == "floats" else (BLOCKS.get(source, "int4"),):
        weight = ops.pack(matrix_of(Case(format, source, "float32", 1, 21, 384, False), rng), None, format)
        torch.testing.assert_close(embedded(ops, weight).double(), unpacked(weight), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_of_a_gguf_file_keep_their_values(ops: Ops, kind: str) -> None:
    blocks = matrix_of(Case(BLOCKS[kind], kind, "float32", 1, 70, 96, False), np.random.default_rng(3))
    assert isinstance(blocks, Blocks)
    weight = ops.pack(blocks, None, blocks.format)
    np.testing.assert_allclose(embedded(ops, weight), blocks.floats(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("source", GROUPS)
def test_weights_in_4_bits_keep_their_values_and_are_made_again_from_their_parts(ops: Ops, source: str) -> None:
    matrix = matrix_of(Case("int4", source, "float32", 1, 21, 384, False), np.random.default_rng(4))
    assert isinstance(matrix, Int4)
    weight = ops.pack(matrix, None, "int4")
    again = ops.unpack("int4", 21, 384, {name: np.array(part) for name, part in weight.parts.items()})
    for each in (weight, again):
        np.testing.assert_allclose(embedded(ops, each), matrix.floats(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("size", [256, 512, 192, 96])
def test_groups_of_other_sizes_are_kept_as_several_with_one_scale(ops: Ops, size: int) -> None:
    matrix = random_int4(np.random.default_rng(5), 21, size * 2, size)
    np.testing.assert_allclose(embedded(ops, ops.pack(matrix, None, "int4")), matrix.floats(), rtol=1e-6, atol=1e-9)


def test_groups_of_an_odd_size_are_refused(ops: Ops) -> None:
    with pytest.raises(ValueError, match="groups of 48 inputs cannot be kept; of multiples of 32 they can"):
        ops.pack(random_int4(np.random.default_rng(5), 8, 96, 48), None, "int4")


@pytest.mark.parametrize("in_order", [True, False])
def test_parts_of_a_matrix_in_4_bits_have_its_values(in_order: bool) -> None:
    matrix = random_int4(np.random.default_rng(6), 24, 128, 32, in_order=in_order)
    floats = matrix.floats()
    assert np.array_equal(below([matrix.rows(0, 5), matrix.rows(5, 24)]).floats(), floats)
    whole, cut = matrix.columns(32, 96), matrix.columns(30, 96)
    assert isinstance(whole, Int4) == in_order
    assert np.array_equal(whole.floats() if isinstance(whole, Int4) else whole, floats[:, 32:96])
    assert matrix.columns(0, 128) is matrix
    assert isinstance(cut, np.ndarray)
    assert np.array_equal(cut, floats[:, 30:96])


def test_awq_is_read_as_it_was_packed() -> None:
    truth = random_int4(np.random.default_rng(6), 24, 128, 64)
    qweight, qzeros = (words_of(values, AWQ_ORDER) for values in (truth.q.T, truth.zero))
    read = from_awq(qweight, qzeros, truth.scale)
    assert qweight.shape == (128, 3)
    assert np.array_equal(read.floats(), truth.floats())


def test_the_outputs_of_awq_are_interleaved() -> None:
    one_word = np.array([[0x76543210]], np.int32).repeat(32, 0)
    read = from_awq(one_word, np.zeros((1, 1), np.int32), np.ones((1, 8), np.float16))
    assert read.floats()[:, 0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("in_order", [False, True])
def test_gptq_is_read_as_it_was_packed(is_v2: bool, in_order: bool) -> None:
    truth = random_int4(np.random.default_rng(7), 24, 128, 32, in_order=in_order)
    stored = truth.zero if is_v2 else (truth.zero.astype(int) - 1) % 16
    read = from_gptq(words_of(truth.q).T, words_of(stored), truth.scale, truth.group_of, is_v2=is_v2)
    assert np.array_equal(read.floats(), truth.floats())
    if in_order:
        again = from_gptq(words_of(truth.q).T, words_of(stored), truth.scale, is_v2=is_v2)
        assert np.array_equal(again.floats(), truth.floats())


def test_tensors_that_do_not_fit_together_are_refused() -> None:
    truth = random_int4(np.random.default_rng(8), 24, 128, 32)
    q, zero = words_of(truth.q).T, words_of(truth.zero)
    with pytest.raises(ValueError, match=r"scales are of \[4, 16\], not of 4 groups and 24 outputs"):
        from_gptq(q, zero, truth.scale[:, :16])
    with pytest.raises(ValueError, match=r"g_idx does not name one of 4 groups for each of 128 inputs"):
        from_gptq(q, zero, truth.scale, truth.group_of + 1)
    with pytest.raises(ValueError, match=r"128 inputs are not 3 groups of one size"):
        from_gptq(q, zero[:3], truth.scale[:3])
