"""A tiny model and runners over it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from octavo_worker.config import WorkerConfig
from octavo_worker.runner import Runner, build_runner

from tests.doubles.tiny_model import make_tiny_model
from tests.kernels.implementations import WHOLE


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(params=WHOLE)
def kernels(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def make_runner(tiny: Path, kernels: str) -> Callable[..., Runner]:
    """A runner of the tiny model in float32, with these settings changed."""
    base = {"model": tiny, "kernels": kernels, "dtype": "float32", "pages": 64, "max_context": 512}

    def make(**changes: object) -> Runner:
        return build_runner(WorkerConfig(**{**base, **changes}))  # type: ignore[arg-type]

    return make
