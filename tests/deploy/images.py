"""Dockerfiles read as data, and their install lines run in a clean environment, since no container can be started here."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted((ROOT / "deploy").glob("Dockerfile.*"))
PREFIX = "/opt/octavo"  # where an image keeps its environment


@dataclass(frozen=True)
class Stage:
    """One `FROM ... AS name`, with its instructions in order."""

    base: str
    name: str
    instructions: tuple[tuple[str, str], ...]

    def values(self, instruction: str) -> list[str]:
        return [value for name, value in self.instructions if name == instruction]


def read_stages(text: str) -> dict[str, Stage]:
    """The stages of a Dockerfile by name; the last one goes by the empty name when it has none."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^\s*#.*\n", "", text))
    stages: dict[str, Stage] = {}
    for block in re.split(r"(?m)^FROM ", joined)[1:]:
        head, *lines = block.strip().splitlines()
        base, _, name = head.partition(" AS ")
        pairs = (line.split(maxsplit=1) for line in lines if line.strip())
        stages[name] = Stage(base, name, tuple((pair[0], pair[1]) for pair in pairs))
    return stages


def chain(stages: dict[str, Stage], name: str) -> list[Stage]:
    """A stage and those it is built upon, the lowest first."""
    stage = stages[name]
    return [*(chain(stages, stage.base) if stage.base in stages else []), stage]


def last_value(stages: dict[str, Stage], name: str, instruction: str) -> str:
    return [value for stage in chain(stages, name) for value in stage.values(instruction)][-1]


def environment_stage(stages: dict[str, Stage], name: str) -> Stage:
    """The stage from which an image copies its environment."""
    copies = [value for value in stages[name].values("COPY") if value.startswith("--from=")]
    (source,) = {copy.split()[0].removeprefix("--from=") for copy in copies}
    return stages[source]


def entrypoint(stages: dict[str, Stage], name: str) -> list[str]:
    command: list[str] = json.loads(last_value(stages, name, "ENTRYPOINT"))
    return command


def copy_context(target: Path) -> None:
    """Copy what .dockerignore lets through."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    for name in (line.removeprefix("!") for line in lines if line.startswith("!")):
        source, copy = ROOT / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)


def install_lines(stage: Stage, prefix: Path) -> Iterator[str]:
    """The stage's RUN lines for an environment at `prefix`, made by this interpreter, with pip's cache to save time.

    Debian's packages are left out: this machine keeps its own.
    """
    for line in (line for line in stage.values("RUN") if not line.startswith("apt-get ")):
        moved = line.replace(PREFIX, str(prefix)).replace(" --no-cache-dir", "")
        yield re.sub(r"^python ", f"{sys.executable} ", moved)


def build(dockerfile: Path, name: str, folder: Path) -> Path:
    """Do in `folder` what building the image's target would do, and return its environment."""
    stages = read_stages(dockerfile.read_text())
    context, prefix = folder / "context", folder / "environment"
    copy_context(context)
    for line in install_lines(environment_stage(stages, name), prefix):
        result = subprocess.run(line, shell=True, cwd=context, capture_output=True, text=True)
        assert result.returncode == 0, f"{line}\n{result.stdout}{result.stderr}"
    for copy in stages[name].values("COPY"):
        if not copy.startswith("--from="):
            source, target = copy.split()
            shutil.copy(context / source, target.replace(PREFIX, str(prefix)))
    return prefix
