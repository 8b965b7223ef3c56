"""Products with weights of 4 or 8 bits that share a scale in groups of inputs.

A weight lies in slices of 32 bytes of each output, [slice, output, byte]: a tile is one stretch of memory. With 4 bits a
slice is 64 inputs, the first 32 in the low halves of the bytes; with 8 bits it is 32 inputs. What an unsigned q stands for
is q * scale + low, or (q - zero) * scale. Both numbers of a group are float16 and lie in one word, [group, output], so that
they come as one load.
"""

import triton
import triton.language as tl

from octavo_kernels.triton.source.linear import put

SLICE = tl.constexpr(32)
"""Bytes of an output in a slice."""


@triton.jit
def steps_of(words, BITS: tl.constexpr, IS_ZERO: tl.constexpr):
    """What `weight_of` wants of groups, in float32: the scale, 2^BITS times as large, and the least but once that."""
    scale = words.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    low = (words >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    if IS_ZERO:
        low = -low * scale
    scale *= 1 << BITS
    return scale, low - scale


@triton.jit
def weight_of(byte, half, step, least, BITS: tl.constexpr):
    """float32 values of q in bytes. Bits of q after those of 1.0 are 1 + q / 2^BITS: no conversion, which is slow."""
    q = (byte.to(tl.int32) >> (half * 4)) & ((1 << BITS) - 1)
    return tl.fma((q << (23 - BITS) | 0x3F800000).to(tl.float32, bitcast=True), step, least)


@triton.jit
def product_of_groups(
    x,
    m,
    x_stride,
    data,
    words,
    n,
    outputs,
    inputs,
    GROUP: tl.constexpr,
    BITS: tl.constexpr,
    IS_ZERO: tl.constexpr,
    COMPUTE: tl.constexpr,
    SLICES: tl.constexpr,
):
    """Rows n of a weight times rows m of x, in float32, SLICES at a time."""
    HALVES: tl.constexpr = 8 // BITS
    total = tl.zeros((n.shape[0], m.shape[0]), tl.float32)
    j = tl.arange(0, SLICE)
    places = data + n.to(tl.int64)[:, None] * SLICE + j[None, :]
    values = x + m.to(tl.int64)[None, :] * x_stride + j[:, None]
    for start in tl.range(0, inputs, SLICE * HALVES, loop_unroll_factor=SLICES):
        byte = tl.load(places)
        for half in tl.static_range(HALVES):
            k = start + half * SLICE
            step, least = steps_of(tl.load(words + k // GROUP * outputs + n), BITS, IS_ZERO)
            w = weight_of(byte, half, step[:, None], least[:, None], BITS).to(COMPUTE)
            v = tl.load(values + k, (j < inputs - k)[:, None], other=0).to(COMPUTE)
            total = tl.dot(w, v, total, input_precision="ieee")
        places += outputs * SLICE
    return total


@triton.jit
def linear_groups_kernel(
    num_rows,
    x,
    x_scale,
    data,
    words,
    bias,
    gate,
    gate_words,
    out,
    x_stride: tl.int64,
    out_stride: tl.int64,
    outputs,
    inputs,
    GROUP: tl.constexpr,
    BITS: tl.constexpr,
    IS_ZERO: tl.constexpr,
    COMPUTE: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    SLICES: tl.constexpr,
):
    """A tile of OUTPUTS x ROWS. The programs that share outputs follow each other. `gate`: another weight like this one."""
    count = tl.load(num_rows)
    if tl.program_id(0) * ROWS < count:
        m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        n = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
        row, output = tl.minimum(m, count - 1), tl.minimum(n, outputs - 1)
        total = product_of_groups(
            x, row, x_stride, data, words, output, outputs, inputs, GROUP, BITS, IS_ZERO, COMPUTE, SLICES
        )
        opened = total
        if gate is not None:
            opened = product_of_groups(
                x, row, x_stride, gate, gate_words, output, outputs, inputs, GROUP, BITS, IS_ZERO, COMPUTE, SLICES
            )
        put(out, out_stride, total, opened, bias, m, n, count, outputs, gate is not None)


@triton.jit
def take_columns_kernel(num_rows, x, order, out, x_stride: tl.int64, out_stride: tl.int64, width, BLOCK: tl.constexpr):
    """out[row, j] = x[row, order[j]], for BLOCK columns of a row."""
    row = tl.program_id(0)
    if row < tl.load(num_rows):
        at = row.to(tl.int64)
        j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        is_one = j < width
        column = tl.load(order + j, is_one, other=0)
        tl.store(out + at * out_stride + j, tl.load(x + at * x_stride + column, is_one, other=0.0), is_one)


@triton.jit
def embed_groups_kernel(
    num_rows,
    data,
    words,
    order,
    index,
    out,
    out_stride: tl.int64,
    outputs,
    inputs,
    GROUP: tl.constexpr,
    BITS: tl.constexpr,
    IS_ZERO: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK elements of a row of a weight."""
    HALVES: tl.constexpr = 8 // BITS
    row = tl.program_id(0)
    if row < tl.load(num_rows):
        k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        is_one = k < inputs
        n = tl.load(index + row).to(tl.int64)
        piece, half = k // (SLICE * HALVES), k // SLICE % HALVES
        byte = tl.load(data + (piece * outputs + n) * SLICE + k % SLICE, is_one, other=0)
        step, least = steps_of(tl.load(words + k // GROUP * outputs + n, is_one, other=0), BITS, IS_ZERO)
        column = k
        if order is not None:
            column = tl.load(order + k, is_one, other=0)
        values = weight_of(byte, half, step, least, BITS)
        tl.store(out + row.to(tl.int64) * out_stride + column, values.to(out.dtype.element_ty), is_one)
