"""A worker on the C kernels needs no torch, whatever model folder it serves."""

import subprocess
import sys
from pathlib import Path

import pytest
from octavo_kernels import cpu

from tests.patience import PATIENCE

CODE = """
import sys
from octavo_worker.__main__ import serve
from octavo_worker.config import WorkerConfig
from octavo_worker.runner import build_runner
from octavo_worker.warming import warm_up
from octavo_worker import link, loading
warm_up(build_runner(WorkerConfig(model=sys.argv[1], kernels="cpu", pages=64, max_context=512)))
print(*{name.partition(".")[0] for name in sys.modules})
"""


@pytest.mark.skipif(not cpu.is_built(), reason="the C kernels are not built here")
def test_nothing_slow_is_imported(tiny: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, tiny], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert loaded >= {"numpy", "octavo_kernels", "octavo_worker"}
    assert loaded.isdisjoint({"torch", "gguf", "transformers", "tokenizers", "rich"})
