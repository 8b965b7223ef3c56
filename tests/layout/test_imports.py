"""The import table of the design, enforced over the tree."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.layout.rules import broken_imports
from tests.layout.tree import ROOT, Source, package_sources

FORBIDDEN = [
    ("octavo_client.cli", "import octavo_scheduler"),
    ("octavo_client.cli", "import torch"),
    ("octavo_scheduler.loop", "from octavo_worker.batch import Batch"),
    ("octavo_scheduler.loop", "import torch.nn as nn"),
    ("octavo_scheduler.loop", "import zmq"),
    ("octavo_scheduler.matching.matchers", "from llguidance import LLMatcher"),
    ("octavo_scheduler.loop", "def late():\n    from octavo.v1 import step_pb2"),
    ("octavo_scheduler.service", "from octavo.v1 import step_pb2"),
    ("octavo_scheduler.service", "from octavo.v1.step_pb2 import StepPlan"),
    ("octavo_scheduler.frontend.hub", "import zmq"),
    ("octavo_scheduler.frontend.hub", "from octavo.v1 import front_pb2"),
    ("octavo_scheduler.frontend.server", "from octavo.v1 import front_pb2"),
    ("octavo_scheduler.tokens", "import grpc.aio"),
    ("octavo_scheduler.keys", "import zmq"),
    ("octavo_scheduler.errors", "from octavo.v1 import inference_pb2"),
    ("octavo_scheduler.core.planner", "from octavo.v1 import inference_pb2"),
    ("octavo_scheduler.core.planner", "from ..wire import encode"),
    ("octavo_scheduler.core.planner", "import numpy"),
    ("octavo_scheduler.core.planner", "import time"),
    ("octavo_worker.runner", "import octavo_scheduler.core"),
    ("octavo_worker.runner", "from octavo.v1 import step_pb2"),
    ("octavo_worker.runner", "import grpc"),
    ("octavo_worker.runner", "import torch"),
    ("octavo_kernels.cpu.door", "import torch"),
    ("octavo_kernels.ops", "import octavo_worker"),
    ("octavo_kernels.ops", "from octavo.v1 import step_pb2"),
]

ALLOWED = [
    ("octavo_client.client", "import grpc\nfrom octavo.v1 import inference_pb2"),
    ("octavo_scheduler.service", "import grpc\nfrom octavo.v1 import inference_pb2"),
    ("octavo_scheduler.wire", "from octavo.v1 import step_pb2"),
    ("octavo_scheduler.link", "import zmq"),
    ("octavo_scheduler.frontend.link", "import zmq"),
    ("octavo_scheduler.frontend.wire", "from octavo.v1 import admin_pb2, front_pb2"),
    (
        "octavo_scheduler.core.planner",
        "from dataclasses import dataclass\nfrom .pages import Pool\nfrom . import states",
    ),
    ("octavo_worker.batch", "from octavo.v1 import step_pb2\nfrom octavo_kernels.ops import Ops"),
    ("octavo_kernels.reference.dense", "import torch"),
    ("octavo_kernels.triton.attention", "import torch\nimport triton"),
]


def test_every_import_of_the_tree_is_allowed() -> None:
    broken = [sentence for source in package_sources() for sentence in broken_imports(source)]
    assert broken == []


@pytest.mark.parametrize(("module", "text"), FORBIDDEN)
def test_a_forbidden_import_is_found(module: str, text: str) -> None:
    assert len(broken_imports(Source(module, text))) == 1


@pytest.mark.parametrize(("module", "text"), ALLOWED)
def test_an_allowed_import_passes(module: str, text: str) -> None:
    assert broken_imports(Source(module, text)) == []


def test_a_relative_import_of_a_package_is_resolved_from_the_package() -> None:
    inside = Source("octavo_scheduler.core", "from .pages import Pool", is_package=True)
    outside = Source("octavo_scheduler.core", "from ..wire import encode", is_package=True)
    assert broken_imports(inside) == []
    assert "octavo_scheduler.wire.encode" in broken_imports(outside)[0]


def test_the_top_level_folders_are_no_packages() -> None:
    """`kernels/__init__.py` would hide Hugging Face's package of that name."""
    folders = ("protos", "scheduler", "worker", "kernels", "client")
    assert [folder for folder in folders if Path(ROOT, folder, "__init__.py").exists()] == []


SAYS_WHAT_IT_LOADED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def roots_loaded_by(package: str) -> set[str]:
    """Top-level names that are loaded after all modules of a package, in a fresh process. `__main__` would run."""
    modules = [source.module for source in package_sources() if source.module.partition(".")[0] == package]
    lines = [f"import {module}" for module in modules if not module.endswith(".__main__")]
    code = "\n".join([*lines, SAYS_WHAT_IT_LOADED])
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


@pytest.mark.parametrize("package", ["octavo_scheduler", "octavo_client"])
def test_scheduler_and_client_load_no_torch(package: str) -> None:
    loaded = roots_loaded_by(package)
    assert package in loaded
    others = {"octavo_scheduler", "octavo_worker", "octavo_kernels", "octavo_client"} - {package}
    assert loaded.isdisjoint({"torch", "transformers", *others})
