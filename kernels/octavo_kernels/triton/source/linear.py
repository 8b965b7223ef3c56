"""Products with weights of which every output has one scale, or none: floats, bytes of fp8, bytes of int8.

Tiles are transposed, [outputs, rows]: the weight is what matrix instructions take 64 or 128 of at once, so that a few rows
cost no more than they need. A tile goes through all inputs from the first to the last, whatever the rows are beside it, and
each row of activations is a column of its own. Rows past the count are neither read nor written.
"""

import triton
import triton.language as tl


@triton.jit
def from_fp8(byte):
    """The value of e4m3 bits in float16, exact; NaN is not among them. The exponents are 8 apart."""
    wide = byte.to(tl.uint16)
    return ((wide & 0x80) << 8 | (wide & 0x7F) << 7).to(tl.float16, bitcast=True) * 256.0


@triton.jit
def operand(x, IS_FP8: tl.constexpr, COMPUTE: tl.constexpr):
    """As the product takes it."""
    if IS_FP8:
        x = from_fp8(x)
    return x.to(COMPUTE)


@triton.jit
def product(
    x,
    m,
    x_stride,
    weight,
    n,
    inputs,
    IS_FP8: tl.constexpr,
    IS_EVEN: tl.constexpr,
    COMPUTE: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """Rows n of a weight times rows m of x, in float32; in int32 where both are int8."""
    TOTAL: tl.constexpr = tl.int32 if tl.int8 == COMPUTE else tl.float32
    total = tl.zeros((n.shape[0], m.shape[0]), TOTAL)
    k = tl.arange(0, INPUTS)
    weights = weight + n.to(tl.int64)[:, None] * inputs + k[None, :]
    values = x + m.to(tl.int64)[None, :] * x_stride + k[:, None]
    for start in range(0, inputs, INPUTS):
        if IS_EVEN:
            w, v = tl.load(weights), tl.load(values)
        else:
            is_one = k < inputs - start
            w, v = tl.load(weights, is_one[None, :], other=0), tl.load(values, is_one[:, None], other=0)
        w, v = operand(w, IS_FP8, COMPUTE), operand(v, False, COMPUTE)
        total = tl.dot(w, v, total, input_precision="ieee", out_dtype=TOTAL)
        weights += INPUTS
        values += INPUTS
    return total


@triton.jit
def scaled(total, x_scale, m, scale, n):
    """A product in float32, with the scales of its rows and outputs, if there are any."""
    total = total.to(tl.float32)
    if x_scale is not None:
        total *= tl.load(x_scale + m)[None, :]
    if scale is not None:
        total *= tl.load(scale + n)[:, None]
    return total


@triton.jit
def put(out, out_stride, total, gate, bias, m, n, count, outputs, HAS_GATE: tl.constexpr):
    """out[m, n] = total transposed, + bias, or times silu(gate). `total` is [outputs, rows]."""
    if bias is not None:
        total += tl.load(bias + tl.minimum(n, outputs - 1))[:, None]
    if HAS_GATE:
        total *= gate / (1.0 + tl.exp(-gate))
    place = out + m.to(tl.int64)[None, :] * out_stride + n[:, None]
    tl.store(place, total.to(out.dtype.element_ty), (m < count)[None, :] & (n < outputs)[:, None])


@triton.jit
def linear_kernel(
    num_rows,
    x,
    x_scale,
    weight,
    scale,
    bias,
    gate,
    gate_scale,
    out,
    x_stride: tl.int64,
    out_stride: tl.int64,
    outputs,
    inputs,
    IS_FP8: tl.constexpr,
    IS_EVEN: tl.constexpr,
    COMPUTE: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """A tile of OUTPUTS x ROWS. The programs that share outputs follow each other. `gate`: another weight like this one."""
    count = tl.load(num_rows)
    if tl.program_id(0) * ROWS < count:
        m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        n = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
        row, output = tl.minimum(m, count - 1), tl.minimum(n, outputs - 1)
        total = product(x, row, x_stride, weight, output, inputs, IS_FP8, IS_EVEN, COMPUTE, INPUTS)
        total = scaled(total, x_scale, row, scale, output)
        opened = total
        if gate is not None:
            opened = product(x, row, x_stride, gate, output, inputs, IS_FP8, IS_EVEN, COMPUTE, INPUTS)
            opened = scaled(opened, x_scale, row, gate_scale, output)
        put(out, out_stride, total, opened, bias, m, n, count, outputs, gate is not None)


@triton.jit
def quantise_rows_kernel(num_rows, x, out, scale, x_stride: tl.int64, out_stride: tl.int64, width, BLOCK: tl.constexpr):
    """One row in int8: out = round(x / scale), scale = largest magnitude / 127. It is NaN where the row holds no numbers."""
    row = tl.program_id(0)
    if row < tl.load(num_rows):
        at = row.to(tl.int64)
        j = tl.arange(0, BLOCK)
        most = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, width, BLOCK):
            values = tl.load(x + at * x_stride + start + j, start + j < width, other=0.0).to(tl.float32)
            size = tl.abs(values)
            most = tl.maximum(most, tl.where(size < float("inf"), size, float("inf")))  # also for NaN
        largest = tl.max(most, 0)
        is_number = largest < float("inf")
        tl.store(scale + row, tl.where(is_number, largest / 127.0, float("nan")))
        step = tl.where(is_number & (largest > 0), largest / 127.0, 1.0)
        for start in range(0, width, BLOCK):
            is_one = start + j < width
            values = tl.load(x + at * x_stride + start + j, is_one, other=0.0).to(tl.float32)
            whole = nearest(tl.where(is_number, tl.math.div_rn(values, step), 0.0))
            tl.store(out + at * out_stride + start + j, whole.to(tl.int8), is_one)


@triton.jit
def nearest(x):
    """The nearest whole number, ties to even, for |x| < 2^22: additions round, and nothing has room for fractions there."""
    ROOM: tl.constexpr = 12582912.0
    return (x + ROOM) - ROOM


@triton.jit
def embed_kernel(
    num_rows,
    weight,
    scale,
    order,
    index,
    out,
    out_stride: tl.int64,
    outputs,
    inputs,
    IS_FP8: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK elements of a row of a weight in bytes, whose inputs are in order."""
    row = tl.program_id(0)
    if row < tl.load(num_rows):
        k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        taken = tl.load(index + row).to(tl.int64)
        values = operand(tl.load(weight + taken * inputs + k, k < inputs, other=0), IS_FP8, tl.float32)
        values *= tl.load(scale + taken)
        tl.store(out + row.to(tl.int64) * out_stride + k, values.to(out.dtype.element_ty), k < inputs)
