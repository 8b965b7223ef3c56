"""Steps made by hand, and the dense truth in float64 they are compared with."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from octavo_kernels.ops import Geometry, Ops, Step
from torch import Tensor

from tests.pools import memory, poison

GARBAGE = 2**31 - 1


@dataclass(frozen=True)
class Row:
    """`query` tokens after `computed` ones."""

    computed: int
    query: int


@dataclass
class Case:
    """A step over a pool full of NaN, in which only the rows' own tokens are numbers."""

    step: Step
    pool: Tensor  # uint8 [page, byte], the memory of `array`
    array: object  # the pool as the kernels made it
    keys: list[Tensor]  # of each row: [tokens, KV, D]
    values: list[Tensor]
    q: Tensor  # [T, H, D]


def int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def count(number: int) -> np.ndarray:
    """So many rows."""
    return np.array([number], np.int32)


def new_pool(ops: Ops, geometry: Geometry, num_pages: int) -> tuple[object, Tensor]:
    """A pool of NaN, and its bytes."""
    pool = ops.new_pool(geometry, num_pages)
    poison(pool)
    return pool, torch.from_numpy(memory(pool))


def make_case(
    ops: Ops,
    rows: list[Row],
    geometry: Geometry,
    heads: int,
    *,
    layer: int = 0,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    """Writes every row's K and V through `rope_and_write` with angles of zero; table tails are garbage."""
    rng = torch.Generator().manual_seed(seed)
    lengths = [row.computed + row.query for row in rows]
    pages_of = [-(-length // geometry.page_size) for length in lengths]
    num_pages = sum(pages_of) + 3
    free = (torch.randperm(num_pages, generator=rng) + 1).tolist()
    table = torch.full((len(rows) + 2, max(pages_of) + 5), GARBAGE, dtype=torch.int32)
    slots = torch.randperm(len(rows) + 2, generator=rng)[: len(rows)].tolist()
    for slot, num in zip(slots, pages_of, strict=True):
        table[slot, :num] = torch.tensor([free.pop() for _ in range(num)])
    array, pool = new_pool(ops, geometry, num_pages)

    def normal(tokens: int, heads: int) -> Tensor:
        return torch.randn(tokens, heads, geometry.head_dim, generator=rng).to(dtype)

    keys, values = ([normal(n, geometry.num_kv_heads) for n in lengths] for _ in range(2))
    index = [place(table[slot], n, geometry) for slot, n in zip(slots, lengths, strict=True)]
    write_at(ops, torch.cat(keys), torch.cat(values), torch.cat(index), array, layer, geometry)
    step = step_of(rows, slots, table, geometry)
    return Case(step, pool, array, keys, values, normal(step.num_tokens, heads))


def place(table: Tensor, length: int, geometry: Geometry) -> Tensor:
    """Where K and V of a sequence's positions lie: int64 [length]."""
    position = torch.arange(length)
    return table[position // geometry.page_size].long() * geometry.page_size + position % geometry.page_size


def write_all(ops: Ops, k: Tensor, v: Tensor, table: Tensor, pool: object, layer: int, geometry: Geometry) -> None:
    """A whole sequence's K and V, rotated by nothing."""
    write_at(ops, k, v, place(table, len(k), geometry), pool, layer, geometry)


def write_at(ops: Ops, k: Tensor, v: Tensor, index: Tensor, pool: object, layer: int, geometry: Geometry) -> None:
    """K and V of many positions to where `kv_index` says, rotated by nothing."""
    step = empty_step(geometry)
    step.position, step.kv_index = torch.zeros(len(k), dtype=torch.int32), index
    step.count(tokens=len(k), rows=0, head_rows=0, samples=0)
    cos = torch.ones(1, geometry.head_dim // 2)
    ops.rope_and_write(qkv_of(k, k, v), cos, torch.zeros_like(cos), pool, layer, step)


def qkv_of(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One row a token."""
    return torch.cat((q, k, v), dim=1).flatten(1)


def empty_step(geometry: Geometry) -> Step:
    none = torch.zeros(0, dtype=torch.int32)
    return Step(
        geometry=geometry,
        token=none,
        position=none,
        kv_index=none.long(),
        row_slot=none,
        row_start=int32(0),
        row_length=none,
        table=none,
        head_token=none,
        sample_row=none,
        sample_slot=none,
    )


def step_of(rows: list[Row], slots: list[int], table: Tensor, geometry: Geometry) -> Step:
    """A step whose rows lie one after the other."""
    step = empty_step(geometry)
    step.row_slot, step.table = int32(*slots), table
    step.row_start = int32(0, *torch.tensor([row.query for row in rows]).cumsum(0).tolist())
    step.row_length = int32(*(row.computed + row.query for row in rows))
    step.position = torch.cat([torch.arange(row.computed, row.computed + row.query) for row in rows]).int()
    step.count(tokens=int(step.row_start[-1]), rows=len(rows), head_rows=0, samples=0)
    return step


def dense(case: Case, rows: list[Row], heads: int, *, window: int = 0, softcap: float = 0.0) -> Tensor:
    """Softmax attention in float64, one row after the other: [T, H, D]."""
    results, start = [], 0
    for row, k, v in zip(rows, case.keys, case.values, strict=True):
        shared = heads // k.shape[1]
        k, v = (x.double().repeat_interleave(shared, dim=1).transpose(0, 1) for x in (k, v))
        q = case.q[start : start + row.query].double().transpose(0, 1)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        scores = (scores / softcap).tanh() * softcap if softcap else scores
        key, own = torch.arange(k.shape[1]), torch.arange(row.computed, row.computed + row.query)[:, None]
        hidden = (key > own) | (key <= own - (window or len(key)))
        results.append((scores.masked_fill(hidden, -math.inf).softmax(-1) @ v).transpose(0, 1))
        start += row.query
    return torch.cat(results)


def run_attention(ops: Ops, case: Case, layer: int = 0, *, window: int = 0, softcap: float = 0.0) -> Tensor:
    """[T, H, D]. Keys and values beside the queries are NaN: attention has no business there."""
    kv = case.q.new_full((len(case.q), case.step.geometry.num_kv_heads, case.q.shape[2]), math.nan)
    out = torch.full_like(case.q, math.nan)
    ops.prepare(case.step)
    qkv = qkv_of(case.q, kv, kv)
    ops.attention(qkv, case.array, layer, case.step, out.flatten(1), window=window, softcap=softcap)
    return out
