"""Mistral, Ministral and Qwen2 against transformers: windows and biases."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from octavo_worker.architecture import Architecture, from_huggingface
from octavo_worker.errors import ModelError
from octavo_worker.runner import Runner
from safetensors.torch import load_file, save_file

from tests.doubles.tiny_model import make_tiny_model
from tests.pools import poison
from tests.worker.oracle import greedy, last_logits, load_oracle
from tests.worker.plans import Driver
from tests.worker.test_model import PROMPT, logits_after

Make = Callable[..., Runner]
MISTRAL: dict[str, object] = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
MINISTRAL: dict[str, object] = {"architectures": ["MinistralForCausalLM"], "model_type": "ministral"}
QWEN2: dict[str, object] = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
SLIDING, FULL = "sliding_attention", "full_attention"
WINDOW = 8


def family(folder: Path, config: dict[str, object], *, bias: bool = False, layers: int = 3, tie: bool = True) -> Path:
    """A tiny model under another name."""
    path = make_tiny_model(folder, layers=layers, tie=tie)
    text = json.loads((path / "config.json").read_text()) | config
    (path / "config.json").write_text(json.dumps(text))
    if bias:
        rng, tensors = torch.Generator().manual_seed(3), load_file(path / "model.safetensors")
        for layer in range(layers):
            for name, width in (("q", 64), ("k", 32), ("v", 32)):
                made = torch.randn(width, generator=rng)
                tensors[f"model.layers.{layer}.self_attn.{name}_proj.bias"] = made
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


def same_answers(make_runner: Make, path: Path, prompt: list[int], count: int) -> None:
    oracle = load_oracle(path)
    truth = last_logits(oracle, prompt)
    torch.testing.assert_close(logits_after(make_runner(model=path), prompt), truth, rtol=0, atol=1e-3)
    answer = Driver(make_runner(model=path)).generate(prompt, count)
    assert answer == greedy(oracle, prompt, count, use_cache=False)  # its cache knows no window of 1


@pytest.mark.parametrize("window", [1, 7, 16, 50, 1000, None])
def test_a_mistral_answers_as_that_of_transformers_whatever_its_window(
    make_runner: Make, window: int | None, tmp_path: Path
) -> None:
    same_answers(make_runner, family(tmp_path, MISTRAL | {"sliding_window": window}), PROMPT, 24)


@pytest.mark.parametrize("length", [WINDOW - 1, WINDOW, WINDOW + 1])
def test_SW01_SW04_logits_are_those_of_transformers_as_a_sequence_grows_past_the_window(
    make_runner: Make, length: int, tmp_path: Path
) -> None:
    """The recipe: window 8, a prompt of 6 tokens; each further one is computed by itself."""
    path = family(tmp_path, MISTRAL | {"sliding_window": WINDOW})
    runner, oracle = make_runner(model=path), load_oracle(path)
    ids = PROMPT[:6]
    ids += Driver(runner).generate(ids, length - 6)
    assert ids[6:] == greedy(oracle, PROMPT[:6], length - 6)
    runner.reset()
    torch.testing.assert_close(logits_after(runner, ids), last_logits(oracle, ids), rtol=0, atol=1e-3)


@pytest.mark.parametrize("page_size", [3, 16])
@pytest.mark.parametrize("chunk", [1, 5, 20])
def test_SW02_a_prompt_longer_than_the_window_gives_the_same_ids_in_any_chunks(
    make_runner: Make, chunk: int, page_size: int, tmp_path: Path
) -> None:
    path = family(tmp_path, MISTRAL | {"sliding_window": WINDOW})
    runner = make_runner(model=path, page_size=page_size)
    poison(runner.cache.pool)
    assert Driver(runner).generate(PROMPT[:20], 24, chunk=chunk) == greedy(load_oracle(path), PROMPT[:20], 24)


def test_layers_of_a_ministral_have_windows_of_their_own(make_runner: Make, tmp_path: Path) -> None:
    kinds = [SLIDING, FULL, SLIDING]
    path = family(tmp_path, MINISTRAL | {"sliding_window": WINDOW, "layer_types": kinds})
    same_answers(make_runner, path, PROMPT, 24)


@pytest.mark.parametrize("tie", [False, True])
def test_a_qwen2_has_biases_and_no_window_unless_it_says_so(make_runner: Make, tie: bool, tmp_path: Path) -> None:
    path = family(tmp_path, QWEN2 | {"sliding_window": WINDOW, "use_sliding_window": False}, bias=True, tie=tie)
    same_answers(make_runner, path, PROMPT, 24)


def test_the_last_layers_of_a_qwen2_slide_where_it_says_so(make_runner: Make, tmp_path: Path) -> None:
    window = {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1}
    same_answers(make_runner, family(tmp_path, QWEN2 | window, bias=True), PROMPT, 24)


def read(config: dict[str, Any], tmp_path: Path) -> Architecture:
    return from_huggingface(json.loads((family(tmp_path, config) / "config.json").read_text()))


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        (MISTRAL, (0, 0, 0)),
        (MISTRAL | {"sliding_window": 9}, (9, 9, 9)),
        (MISTRAL | {"sliding_window": 9, "layer_types": [SLIDING] * 3}, (9, 9, 9)),
        (MINISTRAL | {"sliding_window": 9}, (9, 9, 9)),
        (QWEN2 | {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2}, (0, 0, 9)),
    ],
)
def test_windows_are_read_layer_by_layer(config: dict[str, Any], windows: tuple[int, ...], tmp_path: Path) -> None:
    assert read(config, tmp_path).windows == windows


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"sliding_window": 9}, "sliding_window = 9, which a LlamaForCausalLM does not have"),
        (MISTRAL | {"sliding_window": 9, "layer_types": [SLIDING, FULL, FULL]}, "layers of one type"),
        (MINISTRAL | {"layer_types": [SLIDING, FULL]}, "do not fit 3 layers"),
        (MINISTRAL | {"layer_types": [SLIDING] * 3}, "a sliding window of 0"),
        (MINISTRAL | {"sliding_window": 9, "layer_types": ["linear_attention"] * 3}, "layer_types that do not fit"),
        (QWEN2 | {"use_sliding_window": True, "sliding_window": 9}, "max_window_layers"),
        (MISTRAL | {"sliding_window": -1}, "sliding_window"),
    ],
)
def test_windows_that_mean_nothing_are_refused(config: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=sentence):
        read(config, tmp_path)
