"""Patching what the device has of arrays in main memory."""

import triton
import triton.language as tl


@triton.jit
def patch_kernel(base, index, value, count, BLOCK: tl.constexpr):
    """base[index[i]] = value[i], for i < count. All but the index, which is int64, are words of 32 bits."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_one = i < count
    tl.store(base + tl.load(index + i, is_one, other=0), tl.load(value + i, is_one, other=0), is_one)
