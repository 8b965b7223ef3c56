"""GPUs that kernels are compiled for, and a driver that says that one of them is here."""

from dataclasses import dataclass
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU. Sizes are those that its maker publishes."""

    name: str
    triton: GPUTarget
    registers: int  # of 32 bits, a multiprocessor
    register_unit: int  # a warp takes whole units of registers
    most_registers: int  # a thread
    shared: int  # bytes a multiprocessor
    shared_block: int  # bytes a program may take
    warps: int  # a multiprocessor
    programs: int  # a multiprocessor
    matrix: tuple[str, ...]  # instructions, as PTX or the assembly calls them, the fastest first
    has_fp8: bool


TARGETS = (
    Target("sm_80", GPUTarget("cuda", 80, 32), 65536, 256, 255, 167936, 166912, 64, 32, ("mma.sync",), False),
    Target(
        "sm_90",
        GPUTarget("cuda", 90, 32),
        65536,
        256,
        255,
        233472,
        232448,
        64,
        32,
        ("wgmma.mma_async", "mma.sync"),
        True,
    ),
    Target(
        "sm_100", GPUTarget("cuda", 100, 32), 65536, 256, 255, 233472, 232448, 64, 32, ("tcgen05.mma", "mma.sync"), True
    ),
    Target("gfx942", GPUTarget("hip", "gfx942", 64), 131072, 512, 512, 65536, 65536, 32, 16, ("v_mfma",), True),
)


class Driver(DriverBase):  # type: ignore[misc]
    """Says that a target is here. What it would launch is compiled and left at that."""

    def __init__(self, target: Target) -> None:
        self.target = target

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return self.target.triton

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0
