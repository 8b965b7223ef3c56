"""What goes wrong at the command line: one sentence, exit code 2, and nobody else is disturbed."""

import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from octavo_client import Client, SamplingParams

from tests.doubles.tiny_model import make_tiny_model
from tests.models import smollm2
from tests.patience import PATIENCE
from tests.processes import module, running, wait_until_serving


def ends(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("program", ["octavo_scheduler", "octavo_worker"])
def test_a_model_that_does_not_exist_is_one_sentence(program: str, tmp_path: Path) -> None:
    code, words = ends(module(program, f"--model={tmp_path}/nowhere", *_other(program, tmp_path)))
    assert code == 2
    assert "does not exist" in words
    assert len(words.strip().splitlines()) == 1


@pytest.mark.model
@pytest.mark.parametrize("program", ["octavo_scheduler", "octavo_worker"])
def test_a_truncated_gguf_is_one_sentence(program: str, tmp_path: Path) -> None:
    with smollm2().open("rb") as file:
        (tmp_path / "cut.gguf").write_bytes(file.read(1_000_000))
    code, words = ends(module(program, f"--model={tmp_path}/cut.gguf", *_other(program, tmp_path)))
    assert code == 2
    assert "cut.gguf" in words
    assert len(words.strip().splitlines()) == 1


def _other(program: str, folder: Path) -> list[str]:
    return [f"--scheduler=ipc://{folder}/w"] if program == "octavo_worker" else [f"--workers=ipc://{folder}/w"]


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "m")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        for flags in (
            [f"--listen=127.0.0.1:{port}", f"--workers=ipc://{tmp_path}/w"],
            ["--listen=127.0.0.1:0", f"--workers=tcp://127.0.0.1:{port}"],
        ):
            code, words = ends(module("octavo_scheduler", f"--model={model}", *flags))
            assert code == 2
            assert "cannot listen" in words


def test_a_second_worker_with_other_weights_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    model, other = make_tiny_model(tmp_path / "m"), make_tiny_model(tmp_path / "o", seed=1)
    steps = f"ipc://{tmp_path}/w"
    scheduler = module("octavo_scheduler", f"--model={model}", f"--listen=unix:{tmp_path}/g", f"--workers={steps}")
    first = module("octavo_worker", f"--model={model}", f"--scheduler={steps}", "--pages=64", "--worker-id=first")
    second = module("octavo_worker", f"--model={other}", f"--scheduler={steps}", "--pages=64", "--worker-id=second")
    with running(scheduler, ready="serving"), running(first, ready="joined"):
        with grpc.insecure_channel(f"unix:{tmp_path}/g") as channel:
            wait_until_serving(channel)
        code, words = ends(second)
        assert code == 2
        assert "other weights" in words
        with Client(f"unix:{tmp_path}/g") as client:
            params = SamplingParams(max_tokens=4, ignore_eos=True)
            assert len(client.generate("still here", params).outputs[0].token_ids) == 4
            assert [worker.worker_id for worker in client.status().workers] == ["first"]


def test_importing_the_scheduler_loads_no_torch() -> None:
    check = "import sys, octavo_scheduler, octavo_scheduler.server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
