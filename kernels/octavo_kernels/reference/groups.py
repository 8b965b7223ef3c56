"""What attention reads in a step, found once and used by all layers.

Rows are grouped by query length (powers of two), so that one long chunk beside many single tokens pads none of them,
and a group has no more rows than fit a scratch that stays in the processor's cache.

In the invariant mode a group is a fixed number of query *tokens*, each with its own mask: its shapes never depend on
the batch, and the order of blocks is the order of positions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from octavo_kernels.ops import ITEM_BYTES, Geometry, Step
from octavo_kernels.reference.memory import DTYPES

BLOCK_TOKENS = 128
SCRATCH_BYTES = 1 << 20  # of K, and as much of V


@dataclass(frozen=True, slots=True)
class Block:
    """One block of positions of the first `num_rows` rows of a group."""

    num_rows: int
    start: int  # its first position
    num_positions: int
    index: Tensor  # [num_rows, KV, pages] int64: K of layer 0 in the pool seen as [.., page_size * D]
    dead_values: Tensor | None  # [num_rows, 1, positions, 1] bool: hold no token of the row. None: all do
    masked: Tensor | None  # [num_rows, 1, 1, queries, positions] bool: not to be looked at. None: none is


@dataclass(frozen=True, slots=True)
class Group:
    """Rows computed together, longest first."""

    token: Tensor  # [rows, queries] index of each query in the step; padded ones repeat the last
    is_real: Tensor  # [rows, queries] bool
    position: Tensor  # [rows, queries]
    blocks: list[Block]


@dataclass(frozen=True, slots=True)
class Workspace:
    """Everything attention derives from a step. The scratches hold K and V of one block, head by head."""

    groups: list[Group]
    keys: Tensor
    values: Tensor


def prepare(step: Step, tile: int | None) -> None:
    """Fill `step.workspace`. `tile`: query tokens of a group in the invariant mode."""
    start = step.row_start[: step.num_rows + 1].long()
    first, count = start[:-1], start.diff()
    slot, length = step.row_slot[: step.num_rows].long(), step.row_length[: step.num_rows].long()
    rows = torch.stack((first, count, slot, length))[:, (slot >= 0) & (count > 0)]
    parts = token_groups(rows, tile) if tile else row_groups(rows, rows_of_scratch(step.geometry))
    groups = [make_group(part, step, tile) for part in parts]
    heads = max((block.index.numel() for group in groups for block in group.blocks), default=0)
    half = step.geometry.page_size * step.geometry.head_dim
    keys, values = torch.empty(2, heads, half, dtype=DTYPES[step.geometry.dtype], device=step.table.device)
    step.workspace = Workspace(groups, keys, values)


def pages_of_block(geometry: Geometry) -> int:
    """Whole pages of about BLOCK_TOKENS tokens."""
    return max(1, BLOCK_TOKENS // geometry.page_size)


def rows_of_scratch(geometry: Geometry) -> int:
    """How many rows' blocks fit SCRATCH_BYTES."""
    elements = pages_of_block(geometry) * geometry.page_size * geometry.num_kv_heads * geometry.head_dim
    return max(1, SCRATCH_BYTES // (elements * ITEM_BYTES[geometry.dtype]))


def row_groups(rows: Tensor, most: int) -> Iterator[Tensor]:
    """Split rows [4, R] (first token, query length, slot, length) by the power of two of the query length."""
    bucket = (rows[1] * 2 - 1).float().log2().floor()
    for value in sorted(set(bucket.tolist())):
        group = rows[:, bucket == value]
        group = group[:, group[3].argsort(descending=True, stable=True)]
        for start in range(0, group.shape[1], most):
            yield group[:, start : start + most]


def token_groups(rows: Tensor, tile: int) -> Iterator[Tensor]:
    """Split rows into single query tokens, `tile` of them together; missing ones have no query and slot -1."""
    first, count, slot, length = rows
    owner = torch.repeat_interleave(torch.arange(rows.shape[1], device=rows.device), count)
    nth = torch.arange(owner.numel(), device=rows.device) - (count.cumsum(0) - count)[owner]
    length = length[owner] - count[owner] + nth + 1
    tokens = torch.stack((first[owner] + nth, torch.ones_like(nth), slot[owner], length))
    missing = torch.tensor([[0], [0], [-1], [1]], device=rows.device).expand(4, -tokens.shape[1] % tile)
    tokens = torch.cat((tokens, missing), dim=1)
    for start in range(0, tokens.shape[1], tile):
        yield tokens[:, start : start + tile]


def make_group(rows: Tensor, step: Step, tile: int | None) -> Group:
    first, count, slot, length = rows
    width = int(count.max())
    nth = torch.arange(width, device=rows.device).expand(rows.shape[1], width)
    is_real = nth < count[:, None]
    nth = torch.minimum(nth, (count[:, None] - 1).clamp(min=0))
    position = (length - count.clamp(min=1))[:, None] + nth
    blocks = list(make_blocks(slot, length, position, step, shrink=tile is None))
    return Group(token=first[:, None] + nth, is_real=is_real, position=position, blocks=blocks)


def make_blocks(slot: Tensor, length: Tensor, query: Tensor, step: Step, *, shrink: bool) -> Iterator[Block]:
    """Blocks of a group from position 0 up. `shrink`: leave rows out (from the end) once they have no more tokens."""
    size, num_pages = step.geometry.page_size, pages_of_block(step.geometry)
    table = step.table[slot.clamp(min=0)]
    for start in range(0, int(length.max()), num_pages * size):
        rows = int((length > start).sum()) if shrink else length.numel()
        key = torch.arange(start, start + num_pages * size, device=slot.device)
        first = start // size
        page = torch.arange(first, first + num_pages, device=slot.device)
        ids = table[:rows, first : first + num_pages]
        ids = pad(ids, (0, num_pages - ids.shape[1]))
        ids = torch.where((page * size < length[:rows, None]) & (slot[:rows, None] >= 0), ids, 0)
        dead, masked = key >= length[:rows, None], key > query[:rows, :, None]
        yield Block(
            num_rows=rows,
            start=start,
            num_positions=num_pages * size,
            index=block_index(ids, step.geometry),
            dead_values=dead[:, None, :, None] if bool(dead.any()) else None,
            masked=masked[:, None, None] if bool(masked.any()) else None,
        )


def block_index(ids: Tensor, geometry: Geometry) -> Tensor:
    """[rows, KV, pages]: where K of each page and head of layer 0 starts, counted in halves of head blocks."""
    head = torch.arange(geometry.num_kv_heads, device=ids.device)[None, :, None]
    return (ids[:, None, :].long() * geometry.num_layers * geometry.num_kv_heads + head) * 2
