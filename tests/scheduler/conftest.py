from pathlib import Path

import pytest
from octavo_scheduler.model import ServedModel, load_model

from tests.doubles.paper_worker import VOCAB_SIZE
from tests.doubles.tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose vocabulary has as many tokens as paper workers know."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", vocab=VOCAB_SIZE, layers=1)


@pytest.fixture(scope="session")
def model(model_folder: Path) -> ServedModel:
    return load_model(model_folder)
