"""Paged attention: online softmax in base 2 over blocks of positions that begin at multiples of their size.

A program takes the query heads that share one KV head as rows of a matrix: those of one token (decode) or of several
tokens of one row of the step (extend). `SHAPE` is an `attention.Shape`; `cache` are the K of this layer and head in page 0,
the scales there, the block table of the row and the elements of a page.

A partial result is the largest score `top` [M], the sum of weights `total` [M] and the weighted values `mixed` [M, D]. A
query that has seen nothing has a top of -inf, which is taken for 0, so that its weights are 0 and not NaN. Products that
are added are written as fma, so that every kernel rounds them alike.
"""

import triton
import triton.language as tl

from octavo_kernels.triton.source.blocks import elements, page_of, widened

TWO_LOG2_E = tl.constexpr(2.8853900817779268)


@triton.jit
def nothing(M: tl.constexpr, D: tl.constexpr):
    """The partial result of no positions."""
    return tl.full([M], float("-inf"), tl.float32), tl.zeros([M], tl.float32), tl.zeros([M, D], tl.float32)


@triton.jit
def merged(top, total, mixed, new_top, new_total, new_mixed):
    """Partial results of positions and of the ones after them."""
    higher = tl.maximum(top, new_top)
    base = tl.where(higher == float("-inf"), 0.0, higher)
    old, new = tl.exp2(top - base), tl.exp2(new_top - base)
    total = tl.fma(total, old, new_total * new)
    mixed = tl.fma(mixed, tl.broadcast_to(old[:, None], mixed.shape), new_mixed * new[:, None])
    return higher, total, mixed


@triton.jit
def finished(total, mixed, SHAPE: tl.constexpr):
    """The result; 0 for queries that saw nothing."""
    return mixed * SHAPE.units[2] / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def capped(scores, SHAPE: tl.constexpr):
    """softcap * tanh(scores * scale / softcap); by its series where 1 - exp would lose what is left of small ones."""
    x = scores * (SHAPE.scale / SHAPE.softcap)
    shrunk = tl.exp2(tl.abs(x) * -TWO_LOG2_E)
    size = (1.0 - shrunk) / (1.0 + shrunk)
    small = x * (1.0 + x * x * (-0.3333333333333333 + x * x * 0.13333333333333333))
    return SHAPE.softcap * tl.where(tl.abs(x) < 0.1, small, tl.where(x < 0.0, -size, size))


@triton.jit
def split_size(position, SHAPE: tl.constexpr):
    """Positions of one split, for a query at `position`: a power of two, as large as the workspace has places."""
    DOUBLINGS: tl.constexpr = SHAPE.doublings
    size = position * 0 + SHAPE.split
    for _ in tl.static_range(DOUBLINGS):
        size = tl.where(position >= size * SHAPE.splits, size * 2, size)
    return size


@triton.jit
def cache_of(pool, scales, table, slot, table_width, page_stride, layer_offset, kv, SHAPE: tl.constexpr):
    """Where K and V of a slot's KV head are found: `cache`."""
    offset = layer_offset + kv.to(tl.int64) * SHAPE.block_elements
    first_scale = scales + offset // 2 + SHAPE.page_size * SHAPE.head_dim
    return pool + offset, first_scale, table + slot * table_width, page_stride


@triton.jit
def first_seen(position, SHAPE: tl.constexpr):
    """The first position that a query sees."""
    return tl.maximum(position - SHAPE.window + 1, 0) if SHAPE.window else 0


@triton.jit
def fold(
    q, position, top, total, mixed, cache, pages, at, lowest, highest, SHAPE: tl.constexpr, IS_MASKED: tl.constexpr
):
    """Folds one block of keys and values, that at position `at`, into a partial result."""
    keys, scales, _, page_stride = cache
    key_position = at + tl.arange(0, SHAPE.tile.block_n)
    d = tl.arange(0, SHAPE.padded_dim)
    is_there, is_dim = (key_position >= lowest) & (key_position <= highest), d < SHAPE.head_dim
    place = pages * page_stride + key_position % SHAPE.page_size * SHAPE.head_dim
    k = elements(keys + place[None, :] + d[:, None], is_there[None, :], is_dim[:, None], SHAPE, IS_MASKED)
    v_place = place + SHAPE.page_size * SHAPE.head_dim
    v = elements(keys + v_place[:, None] + d[None, :], is_there[:, None], is_dim[None, :], SHAPE, IS_MASKED)
    scores = tl.dot(q, widened(k, q.dtype, SHAPE), input_precision="ieee")
    if SHAPE.has_scales:
        scale_place = scales + pages * (page_stride // 2) + key_position % SHAPE.page_size
        k_scale = tl.load(scale_place, is_there, other=0.0).to(tl.float32) * SHAPE.units[0]
        v_scale = tl.load(scale_place + SHAPE.page_size, is_there, other=0.0).to(tl.float32) * SHAPE.units[1]
        scores *= k_scale[None, :]
    if SHAPE.softcap > 0:
        scores = capped(scores, SHAPE)
    if IS_MASKED:
        is_seen = is_there[None, :] & (key_position[None, :] <= position[:, None])
        if SHAPE.window > 0:
            is_seen = is_seen & (key_position[None, :] > position[:, None] - SHAPE.window)
        scores = tl.where(is_seen, scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1) * SHAPE.factor)
    base = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(
        tl.fma(scores, tl.full(scores.shape, SHAPE.factor, tl.float32), tl.zeros_like(scores) - base[:, None])
    )
    keep = tl.exp2(top - base)
    total = tl.fma(total, keep, tl.sum(weights, 1))
    if SHAPE.has_scales:
        weights *= v_scale[None, :]
    mixed = tl.dot(weights.to(q.dtype), widened(v, q.dtype, SHAPE), mixed * keep[:, None], input_precision="ieee")
    return higher, total, mixed


@triton.jit
def walk(
    q,
    position,
    top,
    total,
    mixed,
    cache,
    start,
    end,
    lowest,
    highest,
    SHAPE: tl.constexpr,
    IS_MASKED: tl.constexpr,
):
    """Folds the blocks from `start`, where one begins, to `end`. Pages of the next block are looked up one block ahead,
    so that its keys and values can be fetched while this one is computed."""
    ahead = tl.arange(0, SHAPE.tile.block_n)
    table = cache[2]
    pages = page_of(table, start + ahead, lowest, highest, SHAPE)
    for at in tl.range(start, end, SHAPE.tile.block_n, num_stages=SHAPE.tile.stages):
        next_pages = page_of(table, at + SHAPE.tile.block_n + ahead, lowest, highest, SHAPE)
        top, total, mixed = fold(q, position, top, total, mixed, cache, pages, at, lowest, highest, SHAPE, IS_MASKED)
        pages = next_pages
    return top, total, mixed
