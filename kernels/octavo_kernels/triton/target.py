"""What of a GPU decides how kernels are compiled."""

from dataclasses import dataclass

import triton
from triton.runtime import driver


@dataclass(frozen=True, slots=True)
class Target:
    """Of all GPUs but the first generation that these kernels run on, unless it is said otherwise."""

    knows_fp8: bool = True
    multiplies_registers: bool = False  # tensor cores take operands from there: they are short
    is_amd: bool = False  # warps of 64 with twice the registers, 64 KiB of shared memory


def current() -> Target:
    """That of the GPU kernels are launched on now; the interpreter is like a new one."""
    if triton.knobs.runtime.interpret:
        return Target()
    found = driver.active.get_current_target()
    if found.backend != "cuda":
        return Target(multiplies_registers=True, is_amd=True)
    return Target(knows_fp8=found.arch >= 89, multiplies_registers=found.arch < 90)
