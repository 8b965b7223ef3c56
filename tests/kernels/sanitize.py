"""The kernel tests over a C library with AddressSanitizer and UBSan: `python -m tests.kernels.sanitize [for pytest]`.

The library lies in .cache and is compiled anew after a change. In such a process every buffer of the kernels is a block of
memory of its own, since a sanitizer sees where a block ends, but not where an array within a block does.
"""

import ctypes
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from octavo_kernels.cpu import library, memory
from octavo_kernels.cpu.compile import LIBRARY, SOURCE, CannotBuild, compile_library, compiler

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".cache" / "sanitize"
# Invariance is about bits: hundreds of products of one weight, which take minutes here, show a sanitizer no more than one.
# Wheels have libraries of their own.
LEFT_OUT = ("invariance", "cpu_wheel", "cpu_assembly", "cpu_sanitizers")
EVERYTHING = ("tests/kernels", *(f"--ignore=tests/kernels/test_{name}.py" for name in LEFT_OUT))
FLAGS = ("-O0", "-g1", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def runtime() -> Path:
    """AddressSanitizer's library, which must be in a process from its start. Raises CannotBuild without a compiler."""
    asked = subprocess.run([*compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    return Path(asked.stdout.strip())


def is_possible() -> bool:
    """Whether there is a compiler that has the sanitizers."""
    try:
        return runtime().is_absolute()
    except (CannotBuild, subprocess.CalledProcessError):
        return False


def is_on() -> bool:
    """Whether this process has AddressSanitizer."""
    return hasattr(ctypes.CDLL(None), "__asan_init")


def environment() -> dict[str, str]:
    """Of a process over the library with sanitizers, which is compiled now if there is none or it is old."""
    made, sources = FOLDER / LIBRARY, [*SOURCE.iterdir(), SOURCE.parent / "compile.py", Path(__file__)]
    if not made.exists() or made.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        compile_library(FOLDER, FLAGS)
    asan = {"LD_PRELOAD": str(runtime()), "ASAN_OPTIONS": "detect_leaks=0"}  # Python itself leaks at its end
    return {**os.environ, **asan, library.ANOTHER: str(made)}


class OwnBlocks(memory.Arena):
    """Arrays that share no block."""

    def take(self, num_bytes: int) -> np.ndarray:
        place, c = ctypes.c_void_p(), ctypes.CDLL(None)
        if c.posix_memalign(ctypes.byref(place), ctypes.c_size_t(64), ctypes.c_size_t(num_bytes)) or not place.value:
            raise MemoryError(f"no {num_bytes} bytes")
        block = (ctypes.c_uint8 * num_bytes).from_address(place.value)
        ctypes.memset(block, 0, num_bytes)
        weakref.finalize(block, c.free, place)
        return np.ctypeslib.as_array(block)


def give_each_buffer_its_own_block() -> None:
    """From now on, in this process."""
    memory.ARENA = OwnBlocks()
    setattr(memory, "huge_pages", memory.ARENA.take)  # noqa: B010 (mypy forbids to assign to a function)


def main(arguments: Sequence[str]) -> int:
    """Run pytest; its exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or EVERYTHING)]
    return subprocess.call(command, cwd=ROOT, env=environment())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
