"""Attention and the write into pages: milliseconds of one layer, bytes of K and V read and operations per second."""

import time
from collections.abc import Callable, Iterator

import numpy as np
from octavo_kernels.ops import Geometry, Ops, Step

SHAPES = {"9/3 heads of 64": (9, 3, 64), "32/8 heads of 128": (32, 8, 128)}
DECODE = [(rows, context) for context in (256, 1024, 4096) for rows in (1, 8, 64)]
PREFILL = [(3500, 0), (512, 3000)]
"""(tokens, tokens before them)."""
POOL_BYTES = 3 << 30
"""As many layers as fit, so that no layer finds its pages in a cache."""


def figures(ops: Ops, quick: bool) -> Iterator[dict[str, object]]:
    """One figure for each shape, cache dtype and batch."""
    for name, (heads, kv_heads, head_dim) in list(SHAPES.items())[: 1 if quick else None]:
        for dtype in ("bfloat16", "int8"):
            shape = (heads, kv_heads, head_dim, dtype)
            for rows, context in DECODE:
                yield {"shape": name, "cache": dtype, **measure(ops, shape, rows, 1, context - 1)}
            for tokens, before in PREFILL:
                yield {"shape": name, "cache": dtype, **measure(ops, shape, 1, tokens, before)}


def measure(ops: Ops, shape: tuple[int, int, int, str], rows: int, queries: int, before: int) -> dict[str, object]:
    """`rows` sequences of `queries` tokens after `before` others."""
    heads, kv_heads, head_dim, dtype = shape
    length = before + queries
    pages = -(-length // 16)
    geometry = Geometry(16, 1, kv_heads, head_dim, dtype)
    layers = max(1, min(30, POOL_BYTES // (rows * pages * geometry.page_bytes)))
    geometry = Geometry(16, layers, kv_heads, head_dim, dtype)
    pool = ops.new_pool(geometry, rows * pages)
    table = np.random.default_rng(0).permutation(rows * pages).astype(np.int32).reshape(rows, pages) + 1
    fill(ops, pool, geometry, table, length, heads)
    step = step_of(geometry, table, rows, queries, before)
    qkv = random_rows(ops, rows * queries, (heads + 2 * kv_heads) * head_dim)
    out = ops.new_buffer((rows * queries, heads * head_dim), "bfloat16")
    cos = ops.new_buffer((length, head_dim // 2), "float32")
    attend = ops.capture(step, lambda: each(layers, lambda layer: ops.attention(qkv, pool, layer, step, out)))
    write = ops.capture(step, lambda: each(layers, lambda layer: ops.rope_and_write(qkv, cos, cos, pool, layer, step)))
    seconds, wrote = best(attend) / layers, best(write) / layers
    read = rows * length * geometry.page_bytes / 16 / layers
    positions = rows * sum(range(before + 1, length + 1))
    return {
        "rows": rows,
        "queries": queries,
        "context": length,
        "ms": round(seconds * 1e3, 4),
        "gb_s": round(read / seconds / 1e9, 1),
        "gflop_s": round(4 * positions * heads * head_dim / seconds / 1e9, 1),
        "write_ms": round(wrote * 1e3, 4),
    }


def each(layers: int, run: Callable[[int], None]) -> None:
    """Layer after layer."""
    for layer in range(layers):
        run(layer)


def best(run: Callable[[], None]) -> float:
    """Seconds of the fastest call of those that fit in half a second, four at least."""
    times: list[float] = []
    while len(times) < 4 or sum(times) < 0.5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def random_rows(ops: Ops, rows: int, width: int) -> np.ndarray:
    """bfloat16 of about a normal distribution."""
    buffer: np.ndarray = ops.new_buffer((rows, width), "bfloat16")
    buffer[:] = np.random.default_rng(1).standard_normal((rows, width), np.float32).view(np.uint32) >> 16
    return buffer


def fill(ops: Ops, pool: np.ndarray, geometry: Geometry, table: np.ndarray, length: int, heads: int) -> None:
    """The same tokens for every row and layer."""
    qkv = random_rows(ops, length, (heads + 2 * geometry.num_kv_heads) * geometry.head_dim)
    cos = np.ones((length, geometry.head_dim // 2), np.float32)
    step = step_of(geometry, table, 1, length, 0)
    ops.rope_and_write(qkv, cos, np.zeros_like(cos), pool, 0, step)
    layers = pool.reshape(len(pool), geometry.num_layers, -1)
    layers[table[0], 1:] = layers[table[0], :1]
    for other in table[1:]:
        layers[other] = layers[table[0]]


def step_of(geometry: Geometry, table: np.ndarray, rows: int, queries: int, before: int) -> Step:
    """Rows of the first slots."""
    position = np.tile(np.arange(before, before + queries, dtype=np.int32), rows)
    slot = np.repeat(np.arange(rows), queries)
    none = np.zeros(0, np.int32)
    size = geometry.page_size
    step = Step(
        geometry=geometry,
        token=none,
        position=position,
        kv_index=table[slot, position // size].astype(np.int64) * size + position % size,
        row_slot=np.arange(rows, dtype=np.int32),
        row_start=np.arange(rows + 1, dtype=np.int32) * queries,
        row_length=np.full(rows, before + queries, np.int32),
        table=table,
        head_token=none,
        sample_row=none,
        sample_slot=none,
    )
    step.count(tokens=rows * queries, rows=rows, head_rows=0, samples=0)
    return step
