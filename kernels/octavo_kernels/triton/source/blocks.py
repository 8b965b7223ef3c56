"""Reading and writing blocks of K and V in pages, in the formats that a cache may have.

A head's block in a page is K as [token][dimension], V as [token][dimension], and in a cache of bytes a bfloat16 scale for
each token's K, then for each token's V. Bytes are int8, or e4m3 of which NaN is not used: a row with no finite scale has
a scale of NaN. Where a GPU has no fp8, its bits are taken apart: those of e4m3, shifted, are a float16 2^-8 as large.
"""

import triton
import triton.language as tl


@triton.jit
def page_of(table, position, lowest, highest, SHAPE: tl.constexpr):
    """int64: pages of positions; the null page for those not in lowest..highest."""
    is_there = (position >= lowest) & (position <= highest)
    return tl.load(table + position // SHAPE.page_size, is_there, other=0).to(tl.int64)


@triton.jit
def elements(pointers, is_there, is_dim, SHAPE: tl.constexpr, IS_MASKED: tl.constexpr):
    """Of K or V; 0 where there are none."""
    if IS_MASKED:
        x = tl.load(pointers, is_there & is_dim, other=0.0)
    elif SHAPE.is_padded:
        x = tl.load(pointers, is_dim, other=0.0)
    else:
        x = tl.load(pointers)
    return x


@triton.jit
def widened(x, dtype: tl.constexpr, SHAPE: tl.constexpr):
    """Elements as they are multiplied: int8 as they are, e4m3 2^-8 as large."""
    if SHAPE.format == "fp8":
        wide = (x.to(tl.float16) * 0.00390625).to(dtype)
    elif SHAPE.format == "fp8_bits":
        bits = x.to(tl.int16)
        wide = (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True).to(dtype)
    else:
        wide = x.to(dtype)
    return wide


@triton.jit
def rounded_to_whole(x):
    """To nearest even, for magnitudes below 2^22."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def e4m3_bits(x):
    """uint8: float32 magnitudes up to 448, rounded to nearest even."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    normal = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - (120 << 3)
    tiny = rounded_to_whole(tl.abs(x) * 512.0).to(tl.int32)
    return (tl.where(tl.abs(x) < 0.015625, tiny, normal) | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def scale_of(low, high, MOST: tl.constexpr):
    """Scales of rows [rows, half], bfloat16 values in float32: largest magnitude / MOST, rounded up; NaN for rows that
    are not finite."""
    largest = tl.max(tl.maximum(tl.abs(low), tl.abs(high)), 1)
    bits = tl.math.div_rn(largest, tl.full(largest.shape, MOST, tl.float32)).to(tl.int32, bitcast=True)
    scale = ((bits + 0xFFFF) & -0x10000).to(tl.float32, bitcast=True)
    is_finite = tl.min(((low - low == 0) & (high - high == 0)).to(tl.int32), 1) > 0
    return tl.where(is_finite, scale, float("nan"))


@triton.jit
def as_bytes(x, scale, SHAPE: tl.constexpr):
    """Rows [rows, half] over their scales [rows], as the cache has them."""
    inverse = tl.where(scale > 1e-37, 1.0 / tl.maximum(scale, 1e-37), 0.0)
    scaled = tl.where(x - x == 0, x, 0.0) * inverse[:, None]
    if SHAPE.format == "int8":
        encoded = rounded_to_whole(scaled).to(tl.int8)
    else:
        encoded = e4m3_bits(scaled)
    return encoded
