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
from octavo_kernels.triton.shape import Shape, shapes_of
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
        geometry = step.geometry
        group = out.shape[1] // (geometry.head_dim * geometry.num_kv_heads)
        wide, narrow = shapes_of(step, group, qkv.dtype, window, softcap, is_invariant=self.is_invariant)
        elements, scales = cache.views(pool, geometry, wide.format)
        rows = self.launcher.count(step.rows), step.row_slot, step.row_start, step.row_length
        page_stride = elements.stride(0)
        strides = step.table.stride(0), qkv.stride(0), page_stride, layer * (page_stride // geometry.num_layers)
        call = Call(step, (*rows, step.table, qkv, elements, scales, *strides), out)
        self.decode(call, narrow)
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
            enable_fp_fusion=False,
        )


def workspace(step: Step, shape: Shape) -> Workspace:
    """Of a step, for all rows that it may have. It is made when it is first needed, which is before anything is captured."""
    size = len(step.row_slot), step.geometry.num_kv_heads, shape.splits, shape.group
    if not isinstance(step.workspace, Workspace) or step.workspace.tops.shape != size:
        tops, totals = (torch.empty(size, dtype=torch.float32, device=step.row_slot.device) for _ in range(2))
        step.workspace = Workspace(tops, totals, torch.empty((*size, shape.head_dim), device=step.row_slot.device))
    return step.workspace
