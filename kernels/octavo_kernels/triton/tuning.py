"""Sizes of tiles, by what is multiplied and how many rows a launch holds. Chosen by hand; nothing is tuned at run time.

A few rows: narrow tiles, so that there are enough of them to keep all of memory busy, and long reads. Many: square tiles,
each number of which is used often. Kernels that must give a row the same bits in any launch take the middle one always,
because another size may be another matrix instruction, which may add in another order.
"""

from dataclasses import dataclass

FEW, SOME = 16, 128
"""Most rows of a launch that takes the first tile, the middle one."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a program computes."""

    outputs: int
    rows: int
    inputs: int  # of one round; slices, for formats with groups
    warps: int
    stages: int  # rounds of which inputs are on their way


TILES = {
    "float32": (Tile(32, 16, 32, 4, 3), Tile(64, 32, 32, 8, 3), Tile(64, 64, 32, 4, 3)),
    "float32_groups": (Tile(32, 16, 1, 4, 3), Tile(64, 32, 1, 8, 3), Tile(64, 64, 1, 4, 3)),
    "half": (Tile(32, 16, 128, 4, 4), Tile(128, 64, 64, 4, 3), Tile(128, 128, 64, 8, 3)),
    "fp8": (Tile(32, 16, 128, 4, 4), Tile(128, 64, 64, 8, 4), Tile(128, 128, 64, 8, 3)),
    "int8": (Tile(32, 16, 256, 4, 4), Tile(128, 64, 128, 8, 3), Tile(128, 64, 128, 8, 3)),
    "int8_groups": (Tile(32, 16, 2, 2, 6), Tile(128, 64, 2, 8, 4), Tile(128, 128, 2, 8, 3)),
    "int4": (Tile(32, 16, 2, 2, 6), Tile(128, 64, 1, 8, 4), Tile(128, 128, 1, 8, 3)),
}
"""For few, some and many rows."""


def tile_for(kind: str, rows: int, *, invariant: bool) -> Tile:
    """That of a launch for up to so many rows. `kind`: a key of TILES."""
    few, some, many = TILES[kind]
    if invariant:
        return some
    return few if rows <= FEW else some if rows <= SOME else many
