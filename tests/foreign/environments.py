"""What each foreign client needs, in a folder of its own under .cache/foreign: made on demand, kept between runs.

A folder is made again when what it was made of changes. A test whose client cannot be had is skipped with the reason; with
CI set that is an error for clients that CI is to have.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.layout.tree import ROOT

HERE = Path(__file__).parent
PROTOS = ROOT / "protos"
CACHE = ROOT / ".cache" / "foreign"
INFERENCE = "octavo/v1/inference.proto"
STAMP = ".made-of"
IN_CI = ("node", "smg")
DEBIAN = (
    "protobuf-compiler protobuf-compiler-grpc libgrpc++-dev pkg-config golang-go golang-google-grpc-dev "
    "golang-github-golang-protobuf-1-5-dev protoc-gen-go-1-5 protoc-gen-go-grpc default-jdk-headless libgrpc-java "
    "libprotobuf-java libnetty-java libnetty-tcnative-java libperfmark-java "
    "libgeronimo-annotation-1.3-spec-java protobuf-compiler-grpc-java-plugin ruby-grpc"
)
"""Packages that build all the recipes of this folder."""

Command = Sequence[str | Path]


def made(name: str, sources: Iterable[bytes], make: Callable[[Path], None]) -> Path:
    """The folder of a client, made by `make` unless it was made of these sources before."""
    folder = CACHE / name
    digest = hashlib.sha256(b"\0".join(sources)).hexdigest()
    stamp = folder / STAMP
    if not stamp.is_file() or stamp.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        stamp.write_text(digest)
    return folder


def unavailable(name: str, why: str) -> None:
    """Ends a test whose client cannot be had."""
    assert not (os.environ.get("CI") and name in IN_CI), f"the client {name} must be tested here: {why}"
    pytest.skip(why)


def need_programs(name: str, *programs: str) -> None:
    """Skips where one is missing."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        unavailable(name, f"there is no {', '.join(missing)} here; on Debian: apt-get install {DEBIAN}")


def python_environment(name: str, *requirements: str, by_uv: bool = False) -> Path:
    """The folder of programs of a virtual environment with these packages.

    `by_uv`: where pip would look for versions that go together for longer than anybody waits.
    """

    def make(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        python = folder / "bin" / "python"
        pip: Command = [python, "-m", "pip", "install", "--quiet"]
        uv: Command = [folder / "bin" / "uv", "pip", "install", "--quiet", "--python", python]
        if by_uv:
            run([*pip, "uv"], env=clean_environment())
        command = [*(uv if by_uv else pip), *requirements]
        installed = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
        if installed.returncode:
            unavailable(name, f"pip cannot install {' '.join(requirements)}: {installed.stderr[-400:]}")

    return made(name, [" ".join(requirements).encode(), sys.version.encode()], make) / "bin"


def node_environment() -> Path:
    """The node_modules that package.json asks for."""
    need_programs("node", "node", "npm")
    files = [HERE / "node" / name for name in ("package.json", "package-lock.json")]

    def make(folder: Path) -> None:
        for file in files:
            shutil.copy(file, folder)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder)

    return made("node", [file.read_bytes() for file in files], make) / "node_modules"


def run(command: Command, *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What a command prints; raises with all its words when it fails."""
    result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, f"{command[0]} failed: {result.stdout}{result.stderr}"
    return result.stdout


def clean_environment() -> dict[str, str]:
    """Of a foreign Python: nothing of ours may be found by it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
