"""A tiny model and runners over it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from octavo_worker.config import WorkerConfig
from octavo_worker.runner import Runner, build_runner

from tests.doubles.tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def make_runner(tiny: Path) -> Callable[..., Runner]:
    """A runner of the tiny model, with these settings changed."""

    def make(**changes: object) -> Runner:
        settings: dict[str, object] = {"model": tiny, "pages": 64, "max_context": 512, **changes}
        return build_runner(WorkerConfig(**settings))  # type: ignore[arg-type]

    return make
