"""The decoder against transformers on a tiny model, and on SmolLM2 from its GGUF file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from octavo_worker.config import KV_DTYPES, WEIGHTS
from octavo_worker.runner import Runner

from tests.doubles.tiny_model import make_tiny_model
from tests.models import smollm2
from tests.pools import poison
from tests.worker.oracle import greedy, last_logits, load_oracle
from tests.worker.plans import Driver, growth, new_slots, rows

Make = Callable[..., Runner]
PROMPT = np.random.default_rng(1).integers(3, 320, 90).tolist()


def logits_after(runner: Runner, prompt: list[int]) -> torch.Tensor:
    pages = list(range(1, 2 + len(prompt) // runner.config.page_size))
    Driver(runner).send(new_slots=new_slots({0: prompt}), growth=growth({0: pages}), rows=rows({0: len(prompt)}))
    return torch.tensor(np.asarray(runner.decoder.logits)[0])


def same_answers(runner: Runner, path: Path) -> None:
    oracle = load_oracle(path)
    torch.testing.assert_close(logits_after(runner, PROMPT), last_logits(oracle, PROMPT), rtol=0, atol=5e-4)
    runner.reset()
    assert Driver(runner).generate(PROMPT, 40) == greedy(oracle, PROMPT, 40)


@pytest.mark.parametrize(
    "shape",
    [{}, {"tie": False, "seed": 1}, {"heads": 6, "kv_heads": 3, "head_dim": 10, "hidden": 48, "layers": 3, "seed": 2}],
)
def test_logits_and_greedy_ids_equal_those_of_transformers(
    make_runner: Make, shape: dict[str, Any], tmp_path: Path
) -> None:
    path = make_tiny_model(tmp_path, **shape)
    same_answers(make_runner(model=path), path)


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("page_size", [1, 5, 16, 64])
@pytest.mark.parametrize("chunk", [1, 7, 16, 90])
def test_page_size_and_chunking_change_no_greedy_id(
    make_runner: Make, chunk: int, page_size: int, invariant: bool
) -> None:
    truth = Driver(make_runner()).generate(PROMPT, 20)
    runner = make_runner(page_size=page_size, pages=200, invariant=invariant)
    poison(runner.cache.pool)
    assert Driver(runner).generate(PROMPT, 20, chunk=chunk) == truth


def test_half_precision_runs_and_stays_near(make_runner: Make) -> None:
    truth = logits_after(make_runner(), PROMPT)
    for dtype in set(make_runner().cache.ops.dtypes) - {"float32"}:
        near = logits_after(make_runner(dtype=dtype), PROMPT)
        assert float(torch.nn.functional.cosine_similarity(near, truth, dim=0)) > 0.995


def test_weights_and_pages_of_lower_precision_than_activations_stay_near(make_runner: Make) -> None:
    truth, ops = logits_after(make_runner(), PROMPT), make_runner().cache.ops
    others = [{"weights": each} for each in WEIGHTS if each in ops.formats]
    others += [{"kv_dtype": each} for each in KV_DTYPES if each in ops.cache_dtypes]
    for settings in others:
        near = logits_after(make_runner(**settings), PROMPT)
        least = 0.9 if "int4" in settings.values() else 0.99
        assert float(torch.nn.functional.cosine_similarity(near, truth, dim=0)) > least, settings


@pytest.mark.model
def test_smollm2_from_gguf_equals_transformers(make_runner: Make) -> None:
    path = smollm2()
    oracle = load_oracle(path)
    runner = make_runner(model=path)
    prompt = [1, 4093, 198, 1780, 314, 253, 5500, 47, 2, 198, 1, 520, 9531, 198]
    ours, truth = logits_after(runner, prompt), last_logits(oracle, prompt)
    torch.testing.assert_close(ours, truth, rtol=0, atol=2e-3)
    runner.reset()
    assert Driver(runner).generate(prompt, 24) == greedy(oracle, prompt, 24)
