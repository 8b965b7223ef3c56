"""From an engine folder to the first token nothing slow is imported. Modules are counted, not seconds."""

import subprocess
import sys
from pathlib import Path

import pytest
from octavo_client import LLM, SamplingParams
from octavo_client.cli import main
from octavo_client.local import Programs

from tests.doubles.tiny_model import make_tiny_model
from tests.kernels.implementations import WHOLE

SLOW = {"torch", "gguf", "transformers", "rich", "cryptography", "huggingface_hub"}
RECORDED = """
import atexit, sys
from {module}.__main__ import main
atexit.register(lambda: open(sys.argv.pop(1), "w").write(" ".join({{name.partition(".")[0] for name in sys.modules}})))
sys.exit(main(sys.argv[2:]))
"""


def recorded(module: str, file: Path) -> tuple[str, ...]:
    """A program that writes the names of all modules it has loaded, when it ends."""
    return (sys.executable, "-c", RECORDED.format(module=module), str(file))


@pytest.mark.parametrize("kernels", WHOLE)
def test_scheduler_and_worker_serve_an_engine_folder_without_anything_slow(kernels: str, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    model = make_tiny_model(tmp_path / "model")
    assert main(["prepare", str(model), str(folder), "--kernels", kernels, "--weights", "float32"]) == 0
    scheduler, worker = tmp_path / "scheduler", tmp_path / "worker"
    programs = Programs(recorded("octavo_scheduler", scheduler), recorded("octavo_worker", worker))
    with LLM.load(folder, kv_cache_memory="8MiB", programs=programs) as llm:
        prompt = [{"role": "user", "content": "the user"}]
        assert llm.chat(prompt, SamplingParams(max_tokens=1))[0].outputs[0].token_ids
    loaded = {path.name: set(path.read_text().split()) for path in (scheduler, worker)}
    assert loaded["scheduler"] >= {"grpc", "tokenizers", "jinja2"}
    assert loaded["scheduler"].isdisjoint(SLOW | {"numpy"})
    assert loaded["worker"] >= {"numpy", "zmq", "safetensors"}
    allowed = {"torch"} if kernels == "reference" else set()
    assert loaded["worker"].isdisjoint((SLOW | {"tokenizers"}) - allowed)


def test_the_command_line_starts_its_children_before_grpc_comes_in() -> None:
    code = "import sys, octavo_client.cli, octavo_client.verbs.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    loaded = {name.partition(".")[0] for name in names}
    assert "octavo_client" in loaded
    assert loaded.isdisjoint(SLOW | {"grpc", "google", "asyncio", "numpy"})
    assert "octavo.v1" not in names, "the schema takes a while"
