"""Kernels in C for CPUs, with the instruction set chosen when the library is loaded. No torch."""

import os

from octavo_kernels.cpu.library import variants
from octavo_kernels.ops import Ops

VARIANT = "OCTAVO_CPU_VARIANT"
"""Environment variable that names another variant than the best one, for tests and comparisons."""


def is_built() -> bool:
    """Whether the library is there."""
    return bool(variants())


def build(invariant: bool, threads: int, variant: str | None = None) -> Ops:
    """The CPU kernels. They are batch-invariant in every dtype, asked for or not."""
    from octavo_kernels.cpu.door import open_door
    from octavo_kernels.cpu.tape import Team

    return open_door(Team(threads, variant or os.environ.get(VARIANT) or variants()[0]))
