import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.tiny_model import make_tiny_model
from tests.processes import serving

NODE_CLIENT = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real scheduler and worker with a model of a few kilobytes."""
    with serving(make_tiny_model(tmp_path_factory.mktemp("tiny"))) as address:
        yield address


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What package.json asks for, installed outside the tree."""
    if not shutil.which("npm"):
        assert not os.environ.get("CI"), "the Node client must be tested here, and there is no npm"
        pytest.skip("there is no npm here, so the Node client cannot be installed")
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(NODE_CLIENT / name, folder)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return folder / "node_modules"
