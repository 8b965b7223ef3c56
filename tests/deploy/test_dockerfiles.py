"""The Dockerfiles, read and linted."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.images import DOCKERFILES, ROOT, entrypoint, environment_stage, last_value, read_stages

IMAGES = [("scheduler", ""), ("worker", "worker"), ("worker", "worker-gpu")]


def lint(dockerfile: Path) -> subprocess.CompletedProcess[str]:
    hadolint = Path(sys.executable).with_name("hadolint")
    return subprocess.run([hadolint, dockerfile], capture_output=True, text=True)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_hadolint_finds_nothing(dockerfile: Path) -> None:
    result = lint(dockerfile)
    assert result.returncode == 0, result.stdout


def test_hadolint_finds_an_unpinned_base(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python:latest\n")
    assert "DL3007" in lint(bad).stdout


@pytest.mark.parametrize(("file", "target"), IMAGES)
def test_an_image_runs_as_an_ordinary_user(file: str, target: str) -> None:
    stages = read_stages((ROOT / f"deploy/Dockerfile.{file}").read_text())
    assert last_value(stages, target, "USER") == "10001:10001"


@pytest.mark.parametrize(("file", "target"), IMAGES)
def test_an_image_starts_the_module_it_is_named_after(file: str, target: str) -> None:
    stages = read_stages((ROOT / f"deploy/Dockerfile.{file}").read_text())
    assert entrypoint(stages, target) == ["python", "-m", f"octavo_{file}"]


def test_images_install_the_extras_they_need() -> None:
    scheduler = read_stages((ROOT / "deploy/Dockerfile.scheduler").read_text())
    worker = read_stages((ROOT / "deploy/Dockerfile.worker").read_text())
    assert "'.[scheduler]'" in environment_stage(scheduler, "").values("RUN")[-1]
    assert "'.[worker]'" in environment_stage(worker, "worker").values("RUN")[-1]
    assert "'.[worker,gpu]'" in environment_stage(worker, "worker-gpu").values("RUN")[-1]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"scheduler", "worker", "gpu"} <= set(extras)
