"""Operations on rows of activations. Formulas are in `octavo_kernels.ops`; all of them compute in float32.

A program takes one row, or a piece of one, so that a row's bits do not depend on the others. Strides are in elements.
"""

import triton
import triton.language as tl


@triton.jit
def take_tokens_kernel(
    num_rows, row_slot, row_start, position, history, token, history_width: tl.int64, BLOCK: tl.constexpr
):
    """One row of the step, BLOCK tokens at a time."""
    row = tl.program_id(0)
    if row < tl.load(num_rows):
        slot = tl.load(row_slot + row).to(tl.int64)
        first, end = tl.load(row_start + row), tl.load(row_start + row + 1)
        for start in range(first, end, BLOCK):
            i = start + tl.arange(0, BLOCK)
            is_one = (i < end) & (slot >= 0)
            place = slot * history_width + tl.load(position + i, is_one, other=0)
            tl.store(token + i, tl.load(history + place, is_one, other=0), is_one)


@triton.jit
def take_rows_kernel(
    num_rows, source, index, out, source_stride: tl.int64, out_stride: tl.int64, width, BLOCK: tl.constexpr
):
    """BLOCK elements of one row."""
    row = tl.program_id(0)
    if row < tl.load(num_rows):
        j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        is_one = j < width
        taken = tl.load(index + row).to(tl.int64)
        x = tl.load(source + taken * source_stride + j, is_one, other=0.0)
        tl.store(out + row.to(tl.int64) * out_stride + j, x.to(tl.float32).to(out.dtype.element_ty), is_one)


@triton.jit
def rms_norm_kernel(
    num_rows,
    x,
    residual,
    weight,
    out,
    x_stride: tl.int64,
    residual_stride: tl.int64,
    out_stride: tl.int64,
    eps,
    width,
    HAS_X: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row; BLOCK holds all of it."""
    row = tl.program_id(0)
    if row < tl.load(num_rows):
        at = row.to(tl.int64)
        j = tl.arange(0, BLOCK)
        is_one = j < width
        place = residual + at * residual_stride + j
        total = tl.load(place, is_one, other=0.0).to(tl.float32)
        if HAS_X:
            total += tl.load(x + at * x_stride + j, is_one, other=0.0).to(tl.float32)
            total = total.to(residual.dtype.element_ty).to(tl.float32)
            tl.store(place, total.to(residual.dtype.element_ty), is_one)
        scale = 1.0 / tl.sqrt(tl.sum(total * total, 0) / width + eps)
        normed = total * scale * tl.load(weight + j, is_one, other=0.0)
        tl.store(out + at * out_stride + j, normed.to(out.dtype.element_ty), is_one)


@triton.jit
def silu_mul_kernel(num_rows, gate_up, out, in_stride: tl.int64, out_stride: tl.int64, width, BLOCK: tl.constexpr):
    """BLOCK elements of one row."""
    row = tl.program_id(0)
    if row < tl.load(num_rows):
        at = row.to(tl.int64)
        j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        is_one = j < width
        gate = tl.load(gate_up + at * in_stride + j, is_one, other=0.0).to(tl.float32)
        up = tl.load(gate_up + at * in_stride + width + j, is_one, other=0.0).to(tl.float32)
        gated = gate / (1.0 + tl.exp(-gate)) * up
        tl.store(out + at * out_stride + j, gated.to(out.dtype.element_ty), is_one)
