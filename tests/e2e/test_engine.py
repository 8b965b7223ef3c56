"""`octavo prepare`, `LLM.save_engine` and `LLM.load` with the real programs."""

from pathlib import Path

import pytest
from octavo_client import LLM, SamplingParams
from octavo_client.cli import main

from tests.doubles.tiny_model import make_tiny_model
from tests.kernels.implementations import WHOLE

PROMPT = "the user and the assistant"
PARAMS = SamplingParams(max_tokens=24, temperature=0.0)


@pytest.mark.parametrize("kernels", WHOLE)
def test_a_saved_engine_answers_like_the_model_it_was_made_from(
    kernels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, folder = make_tiny_model(tmp_path / "model"), tmp_path / "engine"
    with LLM(model, kernels=kernels, dtype="float32", kv_cache_memory="8MiB") as llm:
        truth = llm.generate(PROMPT, PARAMS)[0].outputs[0]
        chat = llm.chat([{"role": "user", "content": PROMPT}], PARAMS)[0].outputs[0]
        llm.save_engine(folder)
    with LLM.load(folder, kv_cache_memory="8MiB") as llm:
        assert llm.generate(PROMPT, PARAMS)[0].outputs[0].token_ids == truth.token_ids
        assert llm.chat([{"role": "user", "content": PROMPT}], PARAMS)[0].outputs[0].token_ids == chat.token_ids
    assert main(["prepare", str(folder), "--verify"]) == 0
    assert "is whole: 5 files as they were prepared" in capsys.readouterr().out
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"oops")
    assert main(["prepare", str(folder), "--verify"]) == 1
    assert "is not what was prepared" in capsys.readouterr().err


def test_the_command_line_prepares_what_the_library_loads(tmp_path: Path) -> None:
    model, folder = make_tiny_model(tmp_path / "model"), tmp_path / "engine"
    words = ["--kernels", "reference", "--weights", "bf16", "--dtype", "fp32"]
    assert main(["prepare", str(model), str(folder), *words]) == 0
    with LLM.load(folder, kv_cache_memory="8MiB") as llm:
        assert len(llm.generate(PROMPT, PARAMS)[0].outputs[0].token_ids) == 24
