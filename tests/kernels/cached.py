"""Steps over a paged cache for the C kernels, and the dense truth in float64 that they are compared with.

All of a pool is NaN, except what a case has written: the null page, the pages of nobody, what is past a row's length.
"""

from dataclasses import dataclass

import numpy as np
from octavo_kernels.ops import Geometry, Ops, Step

GARBAGE = 2**31 - 1
"""What a block table holds past a row's length."""


@dataclass(frozen=True)
class Row:
    """`query` tokens after `computed` ones; a padded row has none of its own slots."""

    computed: int
    query: int


@dataclass
class Case:
    """Rows whose keys and values are in the cache; `keys` and `values` of a row are float32 [tokens, KV, D], as stored."""

    rows: list[Row]
    heads: int
    step: Step
    pool: np.ndarray
    keys: list[np.ndarray]
    values: list[np.ndarray]
    qkv: np.ndarray


def int32(values: list[int]) -> np.ndarray:
    return np.array(values, np.int32)


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def activations(x: np.ndarray, dtype: str) -> np.ndarray:
    return np.ascontiguousarray(x, np.float32) if dtype == "float32" else to_bfloat16(x)


def floats(x: np.ndarray) -> np.ndarray:
    """Activations as float32."""
    return x if x.dtype == np.float32 else from_bfloat16(x)


def as_stored(x: np.ndarray, dtype: str) -> np.ndarray:
    """What is left of float32 [..., D] in a cache."""
    if dtype == "bfloat16":
        return from_bfloat16(to_bfloat16(x))
    if dtype == "float16":
        return x.astype(np.float16).astype(np.float32)
    if dtype == "int8":
        most = np.abs(x).max(-1, keepdims=True)
        scale = from_bfloat16(to_bfloat16(most / np.float32(127)))
        scale = np.where(scale * 127 < most, from_bfloat16(to_bfloat16(scale) + np.uint16(1)), scale)
        whole = np.rint(x * (np.float32(1) / scale)).astype(np.float32)
        return np.asarray(whole * scale)
    return x


def nan_pool(ops: Ops, geometry: Geometry, pages: int) -> np.ndarray:
    """Bytes that are NaN in every element type with such a thing, scales of int8 among them."""
    pool: np.ndarray = ops.new_pool(geometry, pages)
    pool[:] = 0xFF
    return pool


def step_of(geometry: Geometry, rows: list[Row], slots: list[int], table: np.ndarray) -> Step:
    """A step whose rows lie one after the other; K and V go where the table says."""
    position = [p for row in rows for p in range(row.computed, row.computed + row.query)]
    slot = [s for s, row in zip(slots, rows, strict=True) for _ in range(row.query)]
    size, none = geometry.page_size, int32([])
    kv_index = [
        int(table[s, p // size]) * size + p % size if s >= 0 else -1 for s, p in zip(slot, position, strict=True)
    ]
    step = Step(
        geometry=geometry,
        token=none,
        position=int32(position),
        kv_index=np.array(kv_index, np.int64),
        row_slot=int32(slots),
        row_start=int32([0, *np.cumsum([row.query for row in rows]).tolist()]),
        row_length=int32([row.computed + row.query for row in rows]),
        table=table,
        head_token=none,
        sample_row=none,
        sample_slot=none,
    )
    step.count(tokens=len(position), rows=len(rows), head_rows=0, samples=0)
    return step


def table_of(rng: np.random.Generator, rows: list[Row], page_size: int) -> tuple[np.ndarray, int]:
    """Block tables of slots in another order than the rows, and how many pages there must be."""
    needed = [-(-(row.computed + row.query) // page_size) for row in rows]
    pages = sum(needed) + 5
    free = (rng.permutation(pages) + 1).tolist()
    table = np.full((len(rows) + 1, max(needed) + 2), GARBAGE, np.int32)
    for slot, count in enumerate(needed):
        table[slot, :count] = [free.pop() for _ in range(count)]
    return table, pages


def make_case(
    ops: Ops,
    geometry: Geometry,
    heads: int,
    rows: list[Row],
    *,
    dtype: str = "float32",
    layer: int = 0,
    seed: int = 0,
    gain: float = 1,
) -> Case:
    """Rows of random tokens that are all in the cache. `gain` of the scores: above 1, a few positions weigh the most."""
    rng = np.random.default_rng(seed)
    table, pages = table_of(rng, rows, geometry.page_size)
    pool = nan_pool(ops, geometry, pages)
    slots = list(range(len(rows)))

    def normal(tokens: int, many: int) -> np.ndarray:
        return rng.standard_normal((tokens, many, geometry.head_dim), np.float32)

    kv, lengths = geometry.num_kv_heads, [row.computed + row.query for row in rows]
    keys, values = ([floats(activations(normal(n, kv), dtype)) for n in lengths] for _ in range(2))
    for slot, k, v in zip(slots, keys, values, strict=True):
        whole = step_of(geometry, [Row(0, len(k))], [slot], table)
        write(ops, whole, pool, activations(np.concatenate((k, k, v), 1), dtype), layer)
    step = step_of(geometry, rows, slots, table)
    queries = normal(step.num_tokens, heads + 2 * kv) * np.float32(gain)
    stored_keys, stored_values = ([as_stored(x, geometry.dtype) for x in each] for each in (keys, values))
    return Case(rows, heads, step, pool, stored_keys, stored_values, activations(queries, dtype))


def write(ops: Ops, step: Step, pool: np.ndarray, qkv: np.ndarray, layer: int = 0) -> None:
    """Keys and values into the pool, turned by nothing."""
    cos = np.ones((int(step.position.max()) + 1, step.geometry.head_dim // 2), np.float32)
    ops.rope_and_write(qkv, cos, np.zeros_like(cos), pool, layer, step)


def run(ops: Ops, case: Case, layer: int = 0, *, window: int = 0, softcap: float = 0.0) -> np.ndarray:
    """Attention's output, [T, H, D], in the activations' own dtype; NaN where nothing was written."""
    tokens, _, dim = case.qkv.shape
    out = activations(
        np.full((tokens, case.heads, dim), np.nan, np.float32), "float32" if case.qkv.dtype == np.float32 else ""
    )
    ops.prepare(case.step)
    ops.attention(case.qkv, case.pool, layer, case.step, out, window=window, softcap=softcap)
    return out


def dense(case: Case, *, window: int = 0, softcap: float = 0.0) -> np.ndarray:
    """Softmax attention of the cache as it was stored, in float64, one row after the other: [T, H, D]."""
    results, start, in_bfloat16 = [], 0, case.step.geometry.dtype in ("bfloat16", "int8")
    for row, k, v in zip(case.rows, case.keys, case.values, strict=True):
        q = floats(case.qkv)[start : start + row.query, : case.heads]
        q = (from_bfloat16(to_bfloat16(q)) if in_bfloat16 else q).astype(np.float64)
        shared = case.heads // k.shape[1]
        k, v = (np.repeat(x, shared, axis=1).astype(np.float64) for x in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k, optimize=True) / np.sqrt(q.shape[-1])
        scores = np.tanh(scores / softcap) * softcap if softcap else scores
        key, own = np.arange(len(k)), np.arange(row.computed, row.computed + row.query)[:, None]
        scores[:, (key > own) | (key <= own - (window or len(key)))] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        results.append(np.einsum("hqk,khd->qhd", weights, v, optimize=True))
        start += row.query
    return np.concatenate(results)
