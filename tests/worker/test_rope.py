"""Positions: tables equal to those of transformers, configurations that mean one thing, and limits that hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from octavo_worker.architecture import from_huggingface
from octavo_worker.config import WorkerConfig
from octavo_worker.errors import ConfigError, ModelError
from octavo_worker.rope import Rope, tables
from octavo_worker.runner import Runner, build_runner
from octavo_worker.source import open_source
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tests.doubles.tiny_model import make_tiny_model
from tests.worker.gguf_files import write_gguf
from tests.worker.oracle import greedy, last_logits, load_oracle
from tests.worker.plans import Driver
from tests.worker.test_model import PROMPT, logits_after

Make = Callable[..., Runner]
CONTEXT = 256
"""Of the models here; the original one of a scaled rope is a quarter of it."""
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN: dict[str, object] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SCALINGS: dict[str, dict[str, object]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn with a factor of attention": YARN | {"attention_factor": 0.7},
    "yarn with scales": YARN | {"mscale": 0.707, "mscale_all_dim": 1.3},
    "yarn with one scale": YARN | {"mscale": 0.707},
    "yarn with other turns": YARN | {"beta_fast": 8, "beta_slow": 2},
    "yarn, not truncated": YARN | {"truncate": False},
    "yarn of a long original context": YARN | {"original_max_position_embeddings": 32768, "factor": 40},
    "yarn that stretches nothing": YARN | {"factor": 1.0},
    "yarn of a tiny original context": YARN | {"original_max_position_embeddings": 8},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
}


def config_of(**changes: object) -> dict[str, Any]:
    sizes = {"hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"intermediate_size": 8, "vocab_size": 320, "max_position_embeddings": CONTEXT}
    names = {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5}
    return names | sizes | {"rope_theta": 500_000.0} | changes


def rope_of(config: dict[str, Any]) -> Rope:
    return from_huggingface(config).rope


def oracle_tables(config: dict[str, Any], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines that transformers uses for a sequence so long."""
    kept = {name: value for name, value in config.items() if name != "architectures"}
    rotary = LlamaRotaryEmbedding(transformers.LlamaConfig(**json.loads(json.dumps(kept))))
    cos, sin = rotary(torch.zeros(1), torch.arange(length)[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half].numpy(), sin[0, :, :half].numpy()


def same_tables(config: dict[str, Any], length: int = CONTEXT) -> None:
    rope = rope_of(config)
    ours = tables(rope.frequencies(64), length, rope.magnitude)
    for own, truth in zip(ours, oracle_tables(config, length), strict=True):
        np.testing.assert_allclose(own, truth, rtol=0, atol=3e-5)


@pytest.mark.parametrize("theta", [10_000.0, 1e6])
@pytest.mark.parametrize("name", SCALINGS)
def test_tables_are_those_of_transformers(name: str, theta: float) -> None:
    same_tables(config_of(rope_theta=theta, rope_scaling=SCALINGS[name]))


@pytest.mark.parametrize("name", ["llama3", "yarn", "yarn with scales", "dynamic"])
def test_a_model_with_scaled_rope_answers_as_that_of_transformers(make_runner: Make, name: str, tmp_path: Path) -> None:
    path = tiny_with(tmp_path, rope_scaling=SCALINGS[name])
    oracle = load_oracle(path)
    torch.testing.assert_close(
        logits_after(make_runner(model=path), PROMPT), last_logits(oracle, PROMPT), rtol=0, atol=5e-4
    )
    assert Driver(make_runner(model=path)).generate(PROMPT, 40) == greedy(oracle, PROMPT, 40)


def tiny_with(folder: Path, *, without: str = "", **changes: object) -> Path:
    path = make_tiny_model(folder)
    config = json.loads((path / "config.json").read_text()) | changes
    config.pop(without, None)
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("length", [1, CONTEXT // 2, CONTEXT])
def test_RP01_dynamic_scaling_changes_nothing_up_to_the_models_own_context(length: int) -> None:
    scaled = config_of(rope_scaling=SCALINGS["dynamic"])
    same_tables(scaled, length)
    plain, own = rope_of(config_of()), rope_of(scaled)
    assert np.array_equal(plain.frequencies(64), own.frequencies(64))
    assert (plain.magnitude, own.magnitude) == (1, 1)


def test_RP02_a_context_beyond_that_in_which_the_base_of_dynamic_scaling_moves_is_refused(tmp_path: Path) -> None:
    path = tiny_with(tmp_path, rope_scaling=SCALINGS["dynamic"], max_position_embeddings=CONTEXT)
    moved, still = (oracle_tables(config_of(rope_scaling=each), 2 * CONTEXT)[0] for each in (SCALINGS["dynamic"], None))
    assert np.abs(moved - still).max() > 0.1, "beyond its context a dynamic base has moved"
    assert build_runner(WorkerConfig(model=path, pages=64)).slots.max_context == CONTEXT
    with pytest.raises(
        ConfigError, match=f"--max-context {CONTEXT + 1} is more than the model's positions reach: {CONTEXT}"
    ):
        build_runner(WorkerConfig(model=path, pages=64, max_context=CONTEXT + 1))


@pytest.mark.parametrize("key", ["rope_theta", "rms_norm_eps", "hidden_act", "max_position_embeddings"])
def test_RP04_a_missing_key_that_changes_what_is_computed_is_an_error(key: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=key):
        open_source(tiny_with(tmp_path, without=key))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_ratio": 2}, "rope_ratio"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2, "alpha": 3}}, "alpha"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2}}, "'longrope' is not supported"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "original_max_position_embeddings"),
        ({"rope_scaling": {"factor": 2}}, "factor"),
        ({"rope_scaling": LLAMA3, "rope_parameters": YARN}, "rope_scaling and rope_parameters"),
        ({"rope_parameters": {"rope_theta": 3}}, "two values of rope_theta"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 3}}}, "full_attention"),
        ({"rope_scaling": YARN, "original_max_position_embeddings": 128}, "two values of original"),
        ({"attention_multiplier": 0.1}, "attention_multiplier"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"num_local_experts": 8}, "num_local_experts"),
    ],
)
def test_RP04_an_unknown_key_or_value_that_may_change_what_is_computed_is_an_error(
    changes: dict[str, object], named: str
) -> None:
    with pytest.raises(ModelError, match=named):
        from_huggingface(config_of(**changes))


def test_RP04_the_base_that_a_model_names_is_the_one_in_its_tables() -> None:
    for theta in (10_000.0, 500_000.0):
        config = config_of(rope_theta=theta)
        assert rope_of(config).theta == theta
        same_tables(config)


@pytest.mark.parametrize("name", SCALINGS)
def test_RP05_the_old_form_and_the_new_one_give_the_same_tables(name: str) -> None:
    scaling, config = SCALINGS[name], config_of()
    old = rope_of(config | {"rope_scaling": scaling})
    older = rope_of(config | {"rope_scaling": {**scaling, "type": scaling["rope_type"], "rope_type": None}})
    theta = config.pop("rope_theta")
    new = rope_of(config | {"rope_parameters": scaling | {"rope_theta": theta}})
    beside = rope_of(config | {"rope_parameters": scaling, "rope_theta": theta})
    assert old == older == new == beside
    assert old.theta == theta


@pytest.mark.parametrize("given", [None, 100])
def test_RP06_the_limit_in_hello_is_the_one_that_plans_are_held_to(given: int | None, tmp_path: Path) -> None:
    path = tiny_with(tmp_path, rope_theta=1e6, max_position_embeddings=CONTEXT)
    runner = build_runner(WorkerConfig(model=path, pages=64, max_context=given))
    assert runner.hello().max_context == runner.slots.max_context == (given or CONTEXT)
    assert len(runner.decoder.cos) == runner.slots.max_context


def test_yarn_in_a_gguf_file_is_that_of_a_folder(tmp_path: Path) -> None:
    folder = tiny_with(tmp_path / "folder", rope_scaling=YARN | {"beta_fast": 16})
    path = write_gguf(
        folder,
        tmp_path / "tiny.gguf",
        matrices=gguf.GGMLQuantizationType.F32,
        llama__rope__scaling__type="yarn",
        llama__rope__scaling__factor=4.0,
        llama__rope__scaling__original_context_length=64,
        llama__rope__scaling__yarn_beta_fast=16.0,
    )
    source = open_source(path)
    assert source.architecture.rope == open_source(folder).architecture.rope
    assert from_huggingface(source.config).rope == source.architecture.rope
