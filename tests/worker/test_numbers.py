"""What a worker does where numbers end."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from octavo_kernels import cpu
from octavo_kernels.cpu.library import variants
from octavo_worker.precision import OUT_OF_RANGE
from octavo_worker.runner import Runner
from safetensors.torch import load_file, save_file

from tests.doubles.tiny_model import make_tiny_model
from tests.worker.plans import Driver, growth, new_slots, rows
from tests.worker.test_model import PROMPT

Make = Callable[..., Runner]
NO_TOKEN = -1
BAD = 200
"""A token that the model has no number for."""


def overflowing(folder: Path) -> Path:
    """A tiny model whose feed-forward parts write numbers above 65,504 into the residual."""
    path = make_tiny_model(folder)
    tensors = load_file(path / "model.safetensors")
    for name in tensors:
        if name.endswith("down_proj.weight"):
            tensors[name] *= 1e5
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


def with_a_bad_token(folder: Path) -> Path:
    """A tiny model that computes infinities for all that comes after one of its tokens, and numbers otherwise."""
    path = make_tiny_model(folder, tie=False)
    tensors = load_file(path / "model.safetensors")
    tensors["model.embed_tokens.weight"][BAD] = torch.inf
    tensors["lm_head.weight"][BAD] = 0  # it never says so itself
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_NU01_what_overflows_in_float16_has_no_token_and_in_float32_it_has(
    make_runner: Make, temperature: float, tmp_path: Path
) -> None:
    path = overflowing(tmp_path)
    for dtype, has_token in (("float16", False), ("float32", True)):
        runner = make_runner(model=path, dtype=dtype, kernels="reference")
        new = new_slots({0: PROMPT}, sampling={"temperature": temperature})
        pages = {0: list(range(1, 8))}
        (token,) = Driver(runner).send(new_slots=new, growth=growth(pages), rows=rows({0: len(PROMPT)}))
        assert (token != NO_TOKEN) == has_token


def test_NU01_a_row_without_numbers_leaves_its_neighbours_and_its_pages_next_owner_alone(
    make_runner: Make, tmp_path: Path
) -> None:
    path = with_a_bad_token(tmp_path)
    good, bad = PROMPT[:20], [*PROMPT[:10], BAD, *PROMPT[10:19]]
    truth = Driver(make_runner(model=path)).generate(good, 3)
    runner = make_runner(model=path)
    driver = Driver(runner)
    new, pages = new_slots({0: good, 1: bad}), growth({0: [1, 2], 1: [3, 4]})
    said = [driver.send(new_slots=new, growth=pages, rows=rows({0: 20, 1: 20}))]
    said += [driver.send(rows=rows({0: 1, 1: 1})) for _ in range(2)]  # planned before the first result came
    assert [tokens[0] for tokens in said] == truth
    assert [tokens[1] for tokens in said] == [NO_TOKEN] * 3
    runner.reset()
    assert Driver(runner, next_page=3).generate(good, 3) == truth


@pytest.mark.parametrize(("made", "is_warned"), [("bfloat16", True), ("float16", False), ("float32", False)])
@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_NU04_a_model_made_in_bfloat16_and_computed_in_float16_is_one_line_of_warning(
    make_runner: Make, key: str, made: str, is_warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_tiny_model(tmp_path)
    config = json.loads((path / "config.json").read_text())
    config.pop("torch_dtype")
    (path / "config.json").write_text(json.dumps(config | {key: made}))
    make_runner(model=path, kernels="reference", dtype="float16")
    assert (capsys.readouterr().err == OUT_OF_RANGE + "\n") == is_warned
    make_runner(model=path, kernels="reference")
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not cpu.is_built(), reason="the C kernels are not built here")
@pytest.mark.parametrize("variant", variants())
def test_NU04_a_processor_without_bfloat16_computes_in_float32_unless_told_otherwise(variant: str) -> None:
    can = variant in ("amx", "avx512bf16")
    assert cpu.build(False, 1, variant).dtypes[0] == ("bfloat16" if can else "float32")
