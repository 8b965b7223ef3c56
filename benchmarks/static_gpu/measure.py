"""Compiles a launch for a target and reads what became of it.

A number that is not found is None, and counts as missing: a checker that takes it for 0 passes whatever comes.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.runtime import driver

from benchmarks.static_gpu.dry import Launch
from benchmarks.static_gpu.targets import Driver, Target

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Of one kernel on one target."""

    registers: int | None  # a thread
    spilled: int | None  # bytes a thread
    shared: int | None  # bytes a program
    warps: int
    matrix: int  # instructions that multiply matrices, in the text
    instruction: str | None  # the fastest of them
    wide_loads: int  # of 16 bytes from global memory, in the text
    occupancy: float | None  # share of the multiprocessor's warps that run at once

    @property
    def is_whole(self) -> bool:
        """Whether no number is missing."""
        return None not in (self.registers, self.spilled, self.shared, self.occupancy)


def compiled(launch: Launch, target: Target) -> Any:
    """The compiled kernel. Raises what the compiler raises."""
    driver.set_active(Driver(target))
    launch.kernel.device_caches.clear()
    return launch.kernel.warmup(*launch.arguments, grid=launch.grid, **({"enable_fp_fusion": True} | launch.options))


def measure(launch: Launch, target: Target) -> Numbers:
    """Compile and read."""
    kernel = compiled(launch, target)
    shared = int(kernel.metadata.shared)
    warps = int(kernel.metadata.num_warps)
    if "cubin" in kernel.asm:
        registers, spilled = of_cubin(kernel.asm["cubin"])
        text = kernel.asm["ptx"]
        wide = len(re.findall(r"ld\.global\S*\.v4\.b32|cp\.async\S* \[[^]]*\], \[[^]]*\], (?:0x10|16)", text))
    else:
        text = kernel.asm["amdgcn"]
        registers, spilled = of_amdgcn(text)
        wide = len(re.findall(r"(?:global|buffer)_load_dwordx4", text))
    return Numbers(
        registers=registers,
        spilled=spilled,
        shared=shared,
        warps=warps,
        matrix=sum(text.count(name) for name in target.matrix),
        instruction=next((name for name in target.matrix if name in text), None),
        wide_loads=wide,
        occupancy=None if registers is None else occupancy(target, registers, shared, warps),
    )


def of_cubin(cubin: bytes) -> tuple[int | None, int | None]:
    """(registers, bytes of stack) a thread. Kernels of ours have a stack only where registers do not suffice."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return number(r"REG:(\d+)", text), number(r"STACK:(\d+)", text)


def of_amdgcn(text: str) -> tuple[int | None, int | None]:
    """(vector registers, spilled bytes) a thread; matrix units add to registers of their own, which count too."""
    vector, spills = number(r"\.vgpr_count:\s+(\d+)", text), number(r"\.vgpr_spill_count:\s+(\d+)", text)
    private = number(r"\.private_segment_fixed_size:\s+(\d+)", text)
    return vector, None if spills is None or private is None else max(4 * spills, private)


def number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return None if found is None else int(found[1])


def occupancy(target: Target, registers: int, shared: int, warps: int) -> float:
    """Share of warps that fit: by registers, by shared memory, by their number."""
    unit = target.register_unit
    of_warp = -(-registers * target.triton.warp_size // unit) * unit
    fits = [target.registers // (of_warp * warps), target.warps // warps, target.programs]
    if shared:
        fits.append(target.shared // (shared + (1024 if target.triton.backend == "cuda" else 0)))
    return float(min(fits) * warps / target.warps)
