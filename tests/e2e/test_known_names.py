"""Programs written for the popular engine, run with only the import changed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from octavo_client import AsyncLLMEngine, EngineArgs, SamplingParams

from tests.doubles.tiny_model import make_tiny_model

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "m", heads=8, kv_heads=4)


def run(program: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error::DeprecationWarning", str(PROGRAMS / program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def test_a_program_for_offline_inference_runs_with_every_setting_it_knows(model: Path, tmp_path: Path) -> None:
    done = run("offline.py", model, tmp_path / "engine")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("[16, 16] '")
    assert "2 ended, 0 of them cancelled" in done.stdout
    assert "cpu+CustomAttention" in done.stdout
    assert lines[-1] == "the same from the engine folder: [True, True]"
    assert "CPUs have no kernels for fp8" in done.stderr
    assert "Answers" in done.stderr


def test_a_program_whose_start_is_not_guarded_says_how_to_mend_it(model: Path) -> None:
    done = run("unguarded.py", model)
    assert done.returncode != 0
    assert "put that under `if __name__ == '__main__':`" in done.stderr


async def test_an_engine_answers_inside_a_handler_of_fastapi_and_ends_what_another_aborts(model: Path) -> None:
    engine = AsyncLLMEngine.from_engine_args(EngineArgs(model=str(model), dtype="float32", max_num_seqs=8))
    app = FastAPI()

    @app.post("/generate")
    async def generate(body: dict[str, Any]) -> dict[str, Any]:
        params = SamplingParams(temperature=0, max_tokens=int(body["max_tokens"]), ignore_eos=True)
        async for output in engine.generate(body["prompt"], params, body["id"]):
            last = output
            if len(output.outputs[0].token_ids) >= body.get("abort_after", 3000):  # an event may bring two
                await engine.abort(body["id"])
        answer = last.outputs[0]
        return {"text": answer.text, "tokens": len(answer.token_ids), "reason": answer.finish_reason}

    try:
        async with AsyncClient(transport=ASGITransport(app), base_url="http://app") as client:
            bodies = [{"prompt": "the user", "max_tokens": 12, "id": name} for name in ("one", "two")]
            bodies.append({"prompt": "the user", "max_tokens": 3000, "id": "three", "abort_after": 2})
            answers = [await client.post("/generate", json=body) for body in bodies]
    finally:
        engine.shutdown()
    one, two, three = (each.json() for each in answers)
    assert one == two
    assert (one["tokens"], one["reason"]) == (12, "length")
    assert three["reason"] == "abort"
    assert 2 <= three["tokens"] < 3000
