"""Steps made by hand, and the dense truth in float64 they are compared with."""

import math
from dataclasses import dataclass

import torch
from octavo_kernels.ops import Geometry, Ops, Step
from torch import Tensor

GARBAGE = 2**31 - 1
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Row:
    """`query` tokens after `computed` ones."""

    computed: int
    query: int


@dataclass
class Case:
    """A step over a pool full of NaN, in which only the rows' own tokens are numbers."""

    step: Step
    pool: Tensor
    keys: list[Tensor]  # of each row: [tokens, KV, D]
    values: list[Tensor]
    q: Tensor
    used_pages: list[int]


def int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def make_case(
    ops: Ops, rows: list[Row], geometry: Geometry, heads: int, *, layer: int = 0, seed: int = 0, gain: float = 1.0
) -> Case:
    """Writes every row's K and V through `rope_and_write` with angles of zero; table tails are garbage."""
    rng = torch.Generator().manual_seed(seed)
    lengths = [row.computed + row.query for row in rows]
    pages_of = [-(-length // geometry.page_size) for length in lengths]
    num_pages = sum(pages_of) + 3
    free = (torch.randperm(num_pages, generator=rng) + 1).tolist()
    table = torch.full((len(rows) + 2, max(pages_of) + 5), GARBAGE, dtype=torch.int32)
    slots = torch.randperm(len(rows) + 2, generator=rng)[: len(rows)].tolist()
    used = []
    for slot, count in zip(slots, pages_of, strict=True):
        pages = [free.pop() for _ in range(count)]
        table[slot, :count] = torch.tensor(pages)
        used += pages
    pool = geometry.new_pool(num_pages, CPU).fill_(math.nan)

    def normal(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=rng) * gain).to(geometry.dtype)

    keys = [normal(n, geometry.num_kv_heads, geometry.head_dim) for n in lengths]
    values = [normal(n, geometry.num_kv_heads, geometry.head_dim) for n in lengths]
    for slot, k, v in zip(slots, keys, values, strict=True):
        write_all(ops, k, v, table[slot], pool, layer, geometry)
    step = step_of(rows, slots, table, geometry)
    q = normal(step.num_tokens, heads, geometry.head_dim)
    return Case(step, pool, keys, values, q, used)


def write_all(ops: Ops, k: Tensor, v: Tensor, table: Tensor, pool: Tensor, layer: int, geometry: Geometry) -> None:
    """A whole sequence's K and V, rotated by nothing."""
    position = torch.arange(k.shape[0])
    step = empty_step(geometry)
    step.position = position.int()
    step.kv_index = table[position // geometry.page_size].long() * geometry.page_size + position % geometry.page_size
    step.num_tokens = k.shape[0]
    cos = torch.ones(k.shape[0], geometry.head_dim // 2)
    ops.rope_and_write(k.clone(), k.clone(), v, cos, torch.zeros_like(cos), pool, layer, step)


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
    step.num_rows, step.num_tokens = len(rows), int(step.row_start[-1])
    return step


def dense(case: Case, rows: list[Row], heads: int) -> Tensor:
    """Softmax attention in float64, one row after the other: [T, H, D]."""
    results, start = [], 0
    for row, k, v in zip(rows, case.keys, case.values, strict=True):
        shared = heads // k.shape[1]
        k, v = (x.double().repeat_interleave(shared, dim=1).transpose(0, 1) for x in (k, v))
        q = case.q[start : start + row.query].double().transpose(0, 1)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        future = torch.arange(k.shape[1]) > torch.arange(row.computed, row.computed + row.query)[:, None]
        results.append((scores.masked_fill(future, -math.inf).softmax(-1) @ v).transpose(0, 1))
        start += row.query
    return torch.cat(results)


def run_attention(ops: Ops, case: Case, layer: int = 0) -> Tensor:
    out = torch.full_like(case.q, math.nan)
    ops.prepare(case.step)
    ops.attention(case.q, case.pool, layer, case.step, out)
    return out
