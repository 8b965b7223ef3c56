"""Attention of rows of one query token: a row's positions are split over programs, and the parts are put together.

Splits begin at multiples of their size, which depends on nothing but the position of the query, so that a row has the same
bits in any batch. A program takes every `parallel`-th split of a row and KV head.
"""

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
def place_of(row, kv, split, SHAPE: tl.constexpr):
    """Where the parts of a row, KV head and split begin."""
    return ((row * tl.num_programs(1) + kv) * SHAPE.splits + split).to(tl.int64) * SHAPE.group


@triton.jit
def walk_split(q, position, cache, start, size, lowest, query, SHAPE: tl.constexpr):
    """The partial result of one split."""
    begin = tl.maximum(start, lowest // SHAPE.tile.block_n * SHAPE.tile.block_n)
    end = tl.minimum(start + size, query + 1)
    top, total, mixed = nothing(SHAPE.tile.block_m, SHAPE.padded_dim)
    return walk(q, position, top, total, mixed, cache, begin, end, lowest, query, SHAPE, True)


@triton.jit
def decode_kernel(
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
    tops,
    totals,
    mixes,
    SHAPE: tl.constexpr,
):
    """Partial results of some splits of one row, into tops, totals and mixes [rows, KV, splits, group (, D)]."""
    row, kv, parallel = tl.program_id(0), tl.program_id(1), tl.num_programs(2)
    if row < tl.load(num_rows):
        token = tl.load(row_start + row).to(tl.int64)
        slot = tl.load(row_slot + row).to(tl.int64)
        if (tl.load(row_start + row + 1) - token == 1) & (slot >= 0):
            cache = cache_of(pool, scales, table, slot, table_width, page_stride, layer_offset, kv, SHAPE)
            m, d = tl.arange(0, SHAPE.tile.block_m), tl.arange(0, SHAPE.padded_dim)
            is_one = (m < SHAPE.group)[:, None] & (d < SHAPE.head_dim)[None, :]
            column = (kv * SHAPE.group + m)[:, None] * SHAPE.head_dim + d[None, :]
            q = tl.load(qkv + token * qkv_stride + column, is_one, other=0.0).to(SHAPE.dtype)
            query = tl.load(row_length + row) - 1
            lowest, size = first_seen(query, SHAPE), split_size(query, SHAPE)
            for split in range(lowest // size + tl.program_id(2), query // size + 1, parallel):
                top, total, mixed = walk_split(q, m * 0 + query, cache, split * size, size, lowest, query, SHAPE)
                place = place_of(row, kv, split, SHAPE) + m
                tl.store(tops + place, top, m < SHAPE.group)
                tl.store(totals + place, total, m < SHAPE.group)
                tl.store(mixes + place[:, None] * SHAPE.head_dim + d[None, :], mixed, is_one)


@triton.jit
def combine_kernel(
    num_rows,
    row_slot,
    row_start,
    row_length,
    tops,
    totals,
    mixes,
    out,
    out_stride: tl.int64,
    SHAPE: tl.constexpr,
    BLOCK_G: tl.constexpr,
):
    """Puts the parts of one row and KV head together, in the order of their positions."""
    row, kv = tl.program_id(0), tl.program_id(1)
    if row < tl.load(num_rows):
        token = tl.load(row_start + row).to(tl.int64)
        if (tl.load(row_start + row + 1) - token == 1) & (tl.load(row_slot + row) >= 0):
            m, d = tl.arange(0, BLOCK_G), tl.arange(0, SHAPE.padded_dim)
            is_one = (m < SHAPE.group)[:, None] & (d < SHAPE.head_dim)[None, :]
            query = tl.load(row_length + row) - 1
            lowest, size = first_seen(query, SHAPE), split_size(query, SHAPE)
            top, total, mixed = nothing(BLOCK_G, SHAPE.padded_dim)
            for split in tl.range(lowest // size, query // size + 1, loop_unroll_factor=4):
                place = place_of(row, kv, split, SHAPE) + m
                part_top = tl.load(tops + place, m < SHAPE.group, other=float("-inf"))
                part_total = tl.load(totals + place, m < SHAPE.group, other=0.0)
                part_mixed = tl.load(mixes + place[:, None] * SHAPE.head_dim + d[None, :], is_one, other=0.0)
                top, total, mixed = merged(top, total, mixed, part_top, part_total, part_mixed)
            result = finished(total, mixed, SHAPE).to(out.dtype.element_ty)
            column = (kv * SHAPE.group + m)[:, None] * SHAPE.head_dim + d[None, :]
            tl.store(out + token * out_stride + column, result, is_one)
