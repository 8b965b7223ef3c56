"""Compiles the C library, beside this file or in another folder: `python compile.py [FOLDER]`. Needs a C compiler alone.

All kernels are one translation unit, variant.c, compiled once for each instruction set; the library chooses among them when
it is loaded. Environment: CC names the compiler, CFLAGS is added to the flags.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(__file__).parent / "source"
LIBRARY = "liboctavo_cpu.so"
COMMON = ("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi", "-pthread")
X86 = {
    "avx2": ("-mavx2", "-mfma", "-mf16c"),
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c"),
}
X86["avx512bf16"] = (*X86["avx512"], "-mavx512bf16", "-mavx512vnni")
X86["amx"] = (*X86["avx512bf16"], "-mamx-tile", "-mamx-bf16", "-mamx-int8")


class CannotBuild(Exception):
    """There is no C compiler, or it failed. The message says which."""


def variants(machine: str) -> dict[str, tuple[str, ...]]:
    """Flags of each variant of a family of processors."""
    return {"generic": ()} | (X86 if machine in ("x86_64", "AMD64") else {})


def compiler() -> list[str]:
    """The C compiler's command. Raises CannotBuild."""
    command = shlex.split(os.environ.get("CC", "cc"))
    if not command or shutil.which(command[0]) is None:
        raise CannotBuild(f"there is no C compiler {' '.join(command)!r}")
    return command


def compile_library(target: Path, flags: tuple[str, ...] = (), machine: str = platform.machine()) -> Path:
    """Compile into folder `target`; the library's path. `machine`: what CC compiles for. Raises CannotBuild."""
    cc, extra = compiler(), (*shlex.split(os.environ.get("CFLAGS", "")), *flags)

    def run(*arguments: str) -> None:
        done = subprocess.run([*cc, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise CannotBuild(f"{' '.join([*cc, *arguments])} failed:\n{done.stderr}")

    def compile_unit(unit: tuple[str, str, tuple[str, ...]]) -> str:
        source, name, options = unit
        made = str(Path(folder) / f"{name}.o")
        run(*COMMON, *options, *extra, "-c", str(SOURCE / source), "-o", made)
        return made

    units: list[tuple[str, str, tuple[str, ...]]] = [("team.c", "team", ()), ("dispatch.c", "dispatch", ())]
    units += [("variant.c", name, (f"-DVARIANT={name}", *options)) for name, options in variants(machine).items()]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_unit, units))
        made = Path(folder) / LIBRARY
        run("-shared", "-pthread", "-Wl,-z,defs", *extra, *objects, "-lm", "-o", str(made))
        target.mkdir(parents=True, exist_ok=True)
        scratch = target / f".{LIBRARY}.{os.getpid()}"
        shutil.copy(made, scratch)
        return scratch.replace(target / LIBRARY)  # at once, under processes that have the old one open


if __name__ == "__main__":
    try:
        print(compile_library(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent))
    except CannotBuild as error:
        sys.exit(f"build of Octavo's CPU kernels: {error}")
