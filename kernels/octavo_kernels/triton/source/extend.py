"""Attention of rows of several query tokens: a program takes as many tokens as fill a tile, of one row and KV head."""

import triton
import triton.language as tl

from octavo_kernels.triton.source.attention import (
    cache_of,
    finished,
    first_seen,
    merged,
    nothing,
    split_size,
    walk,
)


@triton.jit
def row_of_block(block, row_start, num_rows, BLOCK_Q: tl.constexpr):
    """The row that a block of queries belongs to: rows have a block for each BLOCK_Q tokens, and one more."""
    low, high = 0, num_rows
    while high - low > 1:
        middle = (low + high) // 2
        is_later = tl.load(row_start + middle) // BLOCK_Q + middle <= block
        low = tl.where(is_later, middle, low)
        high = tl.where(is_later, high, middle)
    return low


@triton.jit
def walk_all(q, position, top, total, mixed, cache, start, end, first, last, lowest, highest, SHAPE: tl.constexpr):
    """Folds the positions start..end - 1, those of them that the queries first..last see."""
    N: tl.constexpr = SHAPE.tile.block_n
    start = tl.maximum(start, lowest // N * N)
    end = tl.minimum(end, last + 1)
    open_start = start
    if SHAPE.window > 0:
        open_start = tl.minimum(tl.maximum((last - SHAPE.window + N) // N * N, start), tl.maximum(end, start))
        top, total, mixed = walk(q, position, top, total, mixed, cache, start, open_start, lowest, highest, SHAPE, True)
    open_end = tl.maximum(tl.minimum(first + 1, end) // N * N, open_start)
    top, total, mixed = walk(q, position, top, total, mixed, cache, open_start, open_end, lowest, highest, SHAPE, False)
    return walk(q, position, top, total, mixed, cache, open_end, end, lowest, highest, SHAPE, True)


@triton.jit
def walk_by_splits(q, position, cache, first, last, lowest, highest, SHAPE: tl.constexpr):
    """The partial result of all positions, merged split by split as `decode` does: to the same bits."""
    top, total, mixed = nothing(SHAPE.tile.block_m, SHAPE.padded_dim)
    part_top, part_total, part_mixed = nothing(SHAPE.tile.block_m, SHAPE.padded_dim)
    size, sizes = split_size(first, SHAPE), split_size(position, SHAPE)  # a later query's is a multiple
    for start in range(lowest // size * size, last + 1, size):
        end = start + size
        part_top, part_total, part_mixed = walk_all(
            q, position, part_top, part_total, part_mixed, cache, start, end, first, last, lowest, highest, SHAPE
        )
        is_whole = (end % sizes == 0) | (end > last)
        new_top, new_total, new_mixed = merged(top, total, mixed, part_top, part_total, part_mixed)
        top, total = tl.where(is_whole, new_top, top), tl.where(is_whole, new_total, total)
        mixed = tl.where(is_whole[:, None], new_mixed, mixed)
        part_top = tl.where(is_whole, float("-inf"), part_top)
        part_total = tl.where(is_whole, 0.0, part_total)
        part_mixed = tl.where(is_whole[:, None], 0.0, part_mixed)
    return top, total, mixed


@triton.jit
def attend(q, position, cache, first, last, lowest, SHAPE: tl.constexpr):
    """The sum of weights and the weighted values of all positions."""
    if SHAPE.is_split:
        top, total, mixed = walk_by_splits(q, position, cache, first, last, lowest, last, SHAPE)
    else:
        top, total, mixed = nothing(SHAPE.tile.block_m, SHAPE.padded_dim)
        top, total, mixed = walk_all(
            q, position, top, total, mixed, cache, 0, last + 1, first, last, lowest, last, SHAPE
        )
    return total, mixed


@triton.jit
def extend_kernel(
    num_rows,
    row_slot,
    row_start,
    row_length,
    table,
    qkv,
    pool,
    scales,
    table_width: tl.int64,
    qkv_stride: tl.int64,
    page_stride: tl.int64,
    layer_offset: tl.int64,
    out,
    out_stride: tl.int64,
    SHAPE: tl.constexpr,
):
    """One tile of queries. Rows of one query token are left to `decode_kernel`."""
    GROUP: tl.constexpr = SHAPE.group
    BLOCK_Q: tl.constexpr = SHAPE.tile.block_m // SHAPE.group
    block, kv = tl.program_id(0), tl.program_id(1)
    row = row_of_block(block, row_start, tl.load(num_rows), BLOCK_Q)
    begin, row_end = tl.load(row_start + row), tl.load(row_start + row + 1)
    start = begin + (block - row - begin // BLOCK_Q) * BLOCK_Q
    slot = tl.load(row_slot + row).to(tl.int64)
    if (start < row_end) & (row_end - begin > 1) & (slot >= 0) & (row < tl.load(num_rows)):
        m, d = tl.arange(0, SHAPE.tile.block_m), tl.arange(0, SHAPE.padded_dim)
        token = start + m // GROUP
        is_one = ((m < BLOCK_Q * GROUP) & (token < row_end))[:, None] & (d < SHAPE.head_dim)[None, :]
        column = (kv * GROUP + m % GROUP)[:, None] * SHAPE.head_dim + d[None, :]
        q = tl.load(qkv + token.to(tl.int64)[:, None] * qkv_stride + column, is_one, other=0.0).to(SHAPE.dtype)
        first = tl.load(row_length + row) - (row_end - start)
        last = first + tl.minimum(BLOCK_Q, row_end - start) - 1
        lowest = first_seen(first, SHAPE)
        cache = cache_of(pool, scales, table, slot, table_width, page_stride, layer_offset, kv, SHAPE)
        position = first + m // GROUP
        total, mixed = attend(q, position, cache, first, last, lowest, SHAPE)
        result = finished(total, mixed, SHAPE).to(out.dtype.element_ty)
        tl.store(out + token.to(tl.int64)[:, None] * out_stride + column, result, is_one)
