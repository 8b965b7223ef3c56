"""Everything that attention kernels are compiled for. A shape depends on a model and its cache, never on a step."""

from dataclasses import dataclass, replace

import torch
import triton.language as tl

from octavo_kernels.ops import Step
from octavo_kernels.triton import cache, tensors
from octavo_kernels.triton.target import current

LOG2_E = 1.4426950408889634
SPLIT = 256
"""Positions of the smallest split."""
MAX_SPLITS = 32
"""Of one row: longer rows have larger splits."""
DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
UNITS = {"plain": (1.0, 1.0, 1.0), "int8": (1.0, 128.0, 1 / 128), "fp8": (256.0, 256.0, 1.0)}
"""Of K, of V and of the result, powers of two: they keep weights times scales of V in the range of float16, and fp8 is
multiplied 2^-8 as large as it is."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What one program works on."""

    block_m: int  # queries: one for each token and head of a group
    block_n: int  # positions of a block
    stages: int  # blocks that are on their way or computed
    warps: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Of heads, pages and tiles."""

    head_dim: int
    page_size: int
    block_elements: int  # of one head in a page, with its scales
    group: int  # query heads of a KV head
    format: str  # of the cache: see `cache.format_of`
    dtype: tl.dtype  # that is multiplied in
    window: int  # 0: none
    softcap: float  # 0: none
    tile: Tile
    is_split: bool  # whether extended rows are put together of splits, as decoded ones are
    split: int  # positions of the smallest split
    splits: int  # of a row, at most
    doublings: int  # of the size of a split, until the longest row has no more of them

    @property
    def padded_dim(self) -> int:
        """A power of two."""
        return padded(self.head_dim)

    @property
    def is_padded(self) -> bool:
        return self.padded_dim != self.head_dim

    @property
    def has_scales(self) -> bool:
        return self.format != "plain"

    @property
    def scale(self) -> float:
        """Of scores."""
        return float(self.head_dim**-0.5)

    @property
    def factor(self) -> float:
        """Of scores on their way to be exponents of two."""
        return LOG2_E * (1.0 if self.softcap else self.scale)

    @property
    def units(self) -> tuple[float, float, float]:
        """Of K, of V and of the result."""
        return UNITS[self.format.removesuffix("_bits")]


def padded(size: int) -> int:
    """The next power of two that can be multiplied."""
    return max(1 << (size - 1).bit_length(), 16)


def extend_tile(head_dim: int, item_bytes: int, group: int, pressure: int) -> Tile:
    """Of several tokens. `item_bytes` of what is multiplied; `pressure` counts what else than results takes registers."""
    if item_bytes == 4:
        block_m = 32 if head_dim <= 64 or (head_dim <= 128 and not pressure) else 16
        return Tile(max(block_m, padded(group)), 32 if head_dim <= 64 else 16, 2, 8)
    block_n = 32 if pressure or head_dim > 128 else 64
    if head_dim <= 128:
        return Tile(max(64 if pressure > 1 else 128, padded(group)), block_n, 3, 8)
    return Tile(max(32 if pressure else 64, padded(group)), block_n, 2, 8)


def decode_tile(head_dim: int, item_bytes: int, group: int, pressure: int) -> Tile:
    """Of one token."""
    if item_bytes == 4:
        return Tile(padded(group), 32 if head_dim <= 64 else 16, 2, 4 if head_dim <= 64 else 8)
    if pressure or head_dim > 128:
        return Tile(padded(group), 32, 3, 4)
    return Tile(padded(group), 64, 3, 4 if head_dim <= 64 else 8)


def splits_of(capacity: int) -> dict[str, int]:
    """Of rows of at most so many positions, as fields of a shape."""
    doublings = 0
    while SPLIT * MAX_SPLITS << doublings < capacity:
        doublings += 1
    return {"split": SPLIT, "splits": min(MAX_SPLITS, -(-capacity // SPLIT)), "doublings": doublings}


def shapes_of(
    step: Step, group: int, dtype: torch.dtype, window: int, softcap: float, *, is_invariant: bool
) -> tuple[Shape, Shape]:
    """For several tokens, and for one. `dtype` of activations. `is_invariant`: both come to the same bits."""
    geometry, target = step.geometry, current()
    format = cache.format_of(geometry, target)
    if format.startswith("fp8") and dtype != torch.float32:
        dtype = torch.float16  # which holds e4m3, and costs less to make of it than bfloat16
    size = geometry.head_dim, dtype.itemsize, group
    is_converted = tensors.DTYPES[geometry.dtype] != dtype  # elements are, on their way to be multiplied
    wide = extend_tile(*size, is_converted + is_invariant + target.multiplies_registers)
    narrow = decode_tile(*size, is_converted + target.is_amd)
    if target.is_amd:
        wide, narrow = (replace(tile, stages=2, warps=4) for tile in (wide, narrow))

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
            is_split=is_invariant,
            **splits_of(step.table.shape[1] * geometry.page_size),
        )

    return shape(wide), shape(wide if is_invariant else narrow)
