"""Octavo's own build: the C kernels compiled into the wheel, left out where there is no compiler, and carried as sources."""

import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from octavo_kernels.cpu.compile import COMMON, SOURCE, CannotBuild, compiler

ROOT = Path(__file__).resolve().parents[2]
PLACE = "octavo_kernels/cpu/liboctavo_cpu.so"
QUICK = {"CFLAGS": "-O0"}
NO_COMPILER = {"CC": "no-such-compiler"}
AARCH64 = 183
"""Of the machines of ELF."""


def has_compiler() -> bool:
    try:
        return bool(compiler())
    except CannotBuild:
        return False


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no C compiler")


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = {**os.environ, **environment}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=whole, capture_output=True, text=True)


def build(target: str, folder: Path, **environment: str) -> tuple[Path, str]:
    """A built distribution, and what was said besides its name."""
    done = run("-m", "hatchling", "build", "-t", target, "-d", folder, **environment)
    assert done.returncode == 0, done.stderr
    (made,) = folder.iterdir()
    return made, (done.stdout + done.stderr).replace(str(made), "").strip()


def unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def variants_in(folder: Path) -> str:
    """What the kernels of an unpacked wheel say they can run."""
    said = run("-c", "from octavo_kernels import cpu; print(cpu.__file__, *cpu.variants())", PYTHONPATH=str(folder))
    assert said.stdout.startswith(str(folder)), said.stderr
    return said.stdout.partition(" ")[2].strip()


@needs_compiler
def test_a_wheel_carries_the_library_and_is_for_one_platform(tmp_path: Path) -> None:
    wheel, _ = build("wheel", tmp_path / "dist", **QUICK)
    assert wheel.name.startswith("octavo-")
    assert "-py3-none-" in wheel.name
    assert wheel.name.endswith(f"_{platform.machine()}.whl")
    assert variants_in(unpack(wheel, tmp_path / "unpacked")).split()[-1] == "generic"


def test_without_a_compiler_a_wheel_is_built_all_the_same_with_one_line_of_warning(tmp_path: Path) -> None:
    wheel, said = build("wheel", tmp_path / "dist", **NO_COMPILER)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert said == (
        "Octavo is built without its CPU kernels and will be slow on CPUs: there is no C compiler 'no-such-compiler'"
    )
    assert variants_in(unpack(wheel, tmp_path / "unpacked")) == ""


@needs_compiler
def test_a_wheel_without_the_library_is_mended_by_compiling_it(tmp_path: Path) -> None:
    wheel, _ = build("wheel", tmp_path / "dist", **NO_COMPILER)
    folder = unpack(wheel, tmp_path / "unpacked")
    mended = run("-m", "octavo_kernels.cpu.compile", PYTHONPATH=str(folder), **QUICK)
    assert mended.stdout == f"{folder / PLACE}\n", mended.stderr
    assert variants_in(folder).split()[-1] == "generic"


def test_a_compiler_that_fails_stops_the_command_with_its_words(tmp_path: Path) -> None:
    failed = run(
        "-m", "octavo_kernels.cpu.compile", tmp_path, CC=f"{sys.executable} -c 'import sys; sys.exit(\"oh no\")'"
    )
    assert failed.returncode != 0
    assert "oh no" in failed.stderr
    assert not list(tmp_path.iterdir())


def test_an_archive_of_sources_has_all_that_a_build_needs(tmp_path: Path) -> None:
    archive, _ = build("sdist", tmp_path)
    with tarfile.open(archive) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    c_sources = {str(path.relative_to(ROOT)) for path in (ROOT / "kernels/octavo_kernels/cpu/source").iterdir()}
    assert c_sources | {"hatch_build.py", "kernels/octavo_kernels/cpu/compile.py"} <= names
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.parametrize("unit", ["team.c", "dispatch.c", "variant.c"])
def test_the_plain_variant_compiles_for_arm_without_a_warning(unit: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    made, options = tmp_path / "unit.o", (*COMMON, "-Werror", "-DVARIANT=generic", "-c", str(SOURCE / unit))
    cache = {"ZIG_GLOBAL_CACHE_DIR": str(tmp_path), "ZIG_LOCAL_CACHE_DIR": str(tmp_path)}
    done = run("-m", "ziglang", "cc", "-target", "aarch64-linux-gnu", *options, "-o", made, **cache)
    assert done.returncode == 0, done.stderr
    assert int.from_bytes(made.read_bytes()[18:20], "little") == AARCH64
