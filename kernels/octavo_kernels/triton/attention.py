"""Attention over pages.

Rows of one query token go to the decode kernels, all others to the extend kernel, whatever else is in the step: a row's
bits do not depend on the batch. In the invariant mode they do not depend on the chunking either: both kinds of kernels then
use the same tiles, and put their blocks together in the same order.
"""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from octavo_kernels.ops import Step
from octavo_kernels.triton import cache
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.shape import DTYPES, Shape, Tile, decode_tile, extend_tile, splits_of
from octavo_kernels.triton.source.decode import combine_kernel, decode_kernel
from octavo_kernels.triton.source.extend import extend_kernel

PROGRAMS = 8
"""Of the decode kernel for each multiprocessor, if there are as many splits."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Room for the parts of all rows of a step."""

    tops: Tensor  # float32 [rows, KV, splits, group]
    totals: Tensor  # the same
    mixes: Tensor  # float32 [rows, KV, splits, group, D]

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """As kernels are given them."""
        return self.tops, self.totals, self.mixes


@dataclass(frozen=True, slots=True)
class Call:
    """One call of attention: what its launches have in common."""

    step: Step
    source: tuple[Tensor | int, ...]  # arguments that tell what is read; the first four tell the rows
    out: Tensor
    wide: Shape  # of tiles of several tokens
    narrow: Shape  # of tiles of one token


class Attention:
    """The function of the door."""

    def __init__(self, launcher: Launcher, *, is_invariant: bool = False) -> None:
        self.launcher, self.is_invariant = launcher, is_invariant

    def prepare(self, step: Step) -> None:
        """Nothing is worked out ahead: programs read the step when they run."""

    def attention(
        self, qkv: Tensor, pool: Tensor, layer: int, step: Step, out: Tensor, *, window: int = 0, softcap: float = 0.0
    ) -> None:
        """See ops.Attention."""
        format = cache.format_of(step.geometry, self.launcher.device.place)
        elements, scales = cache.views(pool, step.geometry, format)
        wide, narrow = shapes(step, format, qkv.dtype, out.shape[1], window, softcap, is_split=self.is_invariant)
        rows = self.launcher.count(step.rows), step.row_slot, step.row_start, step.row_length
        page_stride = elements.stride(0)
        strides = step.table.stride(0), qkv.stride(0), page_stride, layer * (page_stride // step.geometry.num_layers)
        call = Call(step, (*rows, step.table, qkv, elements, scales, *strides), out, wide, narrow)
        self.decode(call, wide if self.is_invariant else narrow)
        if self.launcher.room is None or self.launcher.room.query > 1:
            self.extend(call, wide)

    def extend(self, call: Call, shape: Shape) -> None:
        """Rows of several query tokens."""
        step, tile = call.step, shape.tile
        rows = self.launcher.most(step.rows, len(step.row_slot))
        tokens = self.launcher.most(step.tokens, len(step.position))
        self.launcher(
            extend_kernel,
            (tokens // (tile.block_m // shape.group) + rows, step.geometry.num_kv_heads),
            *call.source,
            call.out,
            call.out.stride(0),
            SHAPE=shape,
            num_warps=tile.warps,
            enable_fp_fusion=False,
        )

    def decode(self, call: Call, shape: Shape) -> None:
        """Rows of one query token."""
        step, kv = call.step, call.step.geometry.num_kv_heads
        rows = self.launcher.most(step.rows, len(step.row_slot))
        parallel = triton.cdiv(PROGRAMS * self.launcher.device.multiprocessors, rows * kv)
        work = workspace(step, shape)
        self.launcher(
            decode_kernel,
            (rows, kv, min(parallel, shape.splits)),
            *call.source,
            *work.parts,
            SHAPE=shape,
            num_warps=shape.tile.warps,
            enable_fp_fusion=False,
        )
        self.launcher(
            combine_kernel,
            (rows, kv),
            *call.source[:4],
            *work.parts,
            call.out,
            call.out.stride(0),
            SHAPE=shape,
            BLOCK_G=triton.next_power_of_2(shape.group),
        )


def shapes(
    step: Step, format: str, dtype: torch.dtype, width: int, window: int, softcap: float, *, is_split: bool
) -> tuple[Shape, Shape]:
    """With tiles of several tokens and with tiles of one. `width` of a row of results."""
    geometry = step.geometry
    if format.startswith("fp8") and dtype != torch.float32:
        dtype = torch.float16  # which holds e4m3, and costs less to make of it than bfloat16
    group = width // (geometry.head_dim * geometry.num_kv_heads)

    def shape(tile: Tile) -> Shape:
        return Shape(
            head_dim=geometry.head_dim,
            page_size=geometry.page_size,
            block_elements=cache.block_elements(geometry),
            group=group,
            format=format,
            dtype=DTYPES[dtype],
            window=window,
            softcap=softcap,
            tile=tile,
            is_split=is_split,
            **splits_of(step.table.shape[1] * geometry.page_size),
        )

    size = geometry.head_dim, dtype.itemsize, group
    return shape(extend_tile(*size)), shape(decode_tile(*size))


def workspace(step: Step, shape: Shape) -> Workspace:
    """Of a step, for all rows that it may have. It is made when it is first needed, which is before anything is captured."""
    size = len(step.row_slot), step.geometry.num_kv_heads, shape.splits, shape.group
    if not isinstance(step.workspace, Workspace) or step.workspace.tops.shape != size:
        tops, totals = (torch.empty(size, dtype=torch.float32, device=step.row_slot.device) for _ in range(2))
        step.workspace = Workspace(tops, totals, torch.empty((*size, shape.head_dim), device=step.row_slot.device))
    return step.workspace
