"""Engine folders: a model prepared for one kind of kernels, from which a server starts at once.

scheduler's half: tokenizer, template      worker's half: packed weights, then the manifest over everything
                  └───────────► .NAME.partial ──rename──► NAME
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo_client.errors import ConfigError, PrepareFailed

MANIFEST = "manifest.json"
SCHEDULER = (sys.executable, "-m", "octavo_scheduler.prepare")
WORKER = (sys.executable, "-m", "octavo_worker.prepare")


@dataclass(frozen=True)
class Engine:
    """What a manifest says of its folder."""

    weights: str
    kernels: str
    num_files: int
    num_bytes: int


def is_engine(path: Path) -> bool:
    """Whether it looks like an engine folder."""
    return (path / MANIFEST).is_file()


def prepare(model: Path, folder: Path, flags: Sequence[str] = (), *, verbose: bool = False) -> Engine:
    """Makes an engine folder of a model. `flags` are those of the worker's half; `verbose` shows its progress.

    Raises ConfigError when `folder` cannot be made, and PrepareFailed. Then nothing is left behind.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists already; name a folder that does not.")
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        partial.mkdir()
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}.") from error
    try:
        _run([*SCHEDULER, str(model), str(partial)], verbose)
        _run([*WORKER, str(model), str(partial), *flags], verbose)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return describe(folder)


def verify(folder: Path) -> Engine:
    """Compares every byte of an engine folder with its manifest. Raises PrepareFailed."""
    _run([*WORKER, str(folder), "--verify"], verbose=False)
    return describe(folder)


def describe(folder: Path) -> Engine:
    """Of a folder that is whole."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    files = manifest["files"].values()
    return Engine(manifest["weights"], manifest["kernels"], len(files), sum(file["bytes"] for file in files))


def flags_of(values: Mapping[str, object]) -> list[str]:
    """Words of a command line for what is given."""
    return [word for name, value in values.items() if value is not None for word in (f"--{name}", str(value))]


def _run(command: Sequence[str], verbose: bool) -> None:
    """A half that fails says why in one line of its stderr, which is the terminal's where it is verbose."""
    try:
        done = subprocess.run(command, stderr=None if verbose else subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise PrepareFailed(f"{command[0]} cannot be started: {error.strerror}.") from error
    if done.returncode:
        lines = (done.stderr or "the model cannot be prepared (see above)").strip().splitlines()
        raise PrepareFailed(lines[-1].removeprefix("octavo prepare: "))
