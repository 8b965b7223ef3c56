"""Rotating the residual stream: nothing changes in exact arithmetic, and much less is lost in 8 bits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from octavo_worker import weights
from octavo_worker.config import WorkerConfig
from octavo_worker.prepare import main
from octavo_worker.rotation import rotation
from octavo_worker.runner import Runner, build_runner
from octavo_worker.source import open_source
from octavo_worker.weights import load
from safetensors.numpy import load_file, save_file

from tests.doubles.tiny_model import make_tiny_model
from tests.kernels.implementations import CPU
from tests.worker.plans import Driver, growth, new_slots, rows

Make = Callable[..., Runner]
Floats = np.ndarray
PROMPT = np.random.default_rng(1).integers(3, 320, 90).tolist()
needs_int8 = pytest.mark.skipif(not CPU, reason="the C kernels are not built here")


def logits(runner: Runner) -> Floats:
    """After the prompt."""
    pages = list(range(1, 2 + len(PROMPT) // runner.config.page_size))
    Driver(runner).send(new_slots=new_slots({0: PROMPT}), growth=growth({0: pages}), rows=rows({0: len(PROMPT)}))
    return np.array(np.asarray(runner.decoder.logits)[0], np.float32)


def error(ours: Floats, truth: Floats) -> float:
    """Relative to the size of all together."""
    return float(np.linalg.norm(ours - truth) / np.linalg.norm(truth))


def change(model: Path, edit: Callable[[dict[str, Floats]], None]) -> Path:
    """The model with other tensors."""
    tensors = load_file(model / "model.safetensors")
    edit(tensors)
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    return model


def add_biases(tensors: dict[str, Floats]) -> None:
    """To all of the first layer's attention, and to what its feed-forward part adds."""
    rng, layer = np.random.default_rng(5), "model.layers.0"
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.down_proj"):
        width = len(tensors[f"{layer}.{name}.weight"])
        tensors[f"{layer}.{name}.bias"] = rng.standard_normal(width).astype(np.float32)


def add_outliers(tensors: dict[str, Floats]) -> None:
    """Channel 7 of the residual is 60 times as large as the others, and norms do not make up for that."""
    for name in tensors:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name][7] *= 60
        if name == "model.embed_tokens.weight":
            tensors[name][:, 7] *= 60


@pytest.mark.parametrize("width", [1, 2, 3, 48, 64, 128, 576, 960, 1000])
def test_it_is_orthogonal_at_every_width(width: int) -> None:
    q = rotation(width).reading(np.eye(width, dtype=np.float32))
    np.testing.assert_allclose(q @ q.T, np.eye(width), rtol=0, atol=1e-5)


def test_it_is_the_same_each_time() -> None:
    one, other = rotation(576), rotation(576)
    assert np.array_equal(one.signs, other.signs)
    assert all(map(np.array_equal, one.factors, other.factors))
    assert [len(factor) for factor in one.factors] == [9, 64]
    assert one.signs[:12].tolist() == [1, 1, -1, -1, 1, -1, 1, 1, 1, 1, -1, 1]


def test_it_spreads_a_channel_over_all_others() -> None:
    for width in (64, 576, 4096):
        channel = np.zeros((1, width), np.float32)
        channel[0, width // 3] = 1
        assert np.abs(rotation(width).reading(channel)).max() < 1.5 / np.sqrt(width)


@pytest.mark.parametrize("outputs", [1, 5, 300])
def test_what_is_read_and_written_is_multiplied_by_it(outputs: int) -> None:
    rng, turn = np.random.default_rng(0), rotation(48)
    q = turn.reading(np.eye(48, dtype=np.float32))
    matrix, norm, bias = (rng.standard_normal(shape, np.float32) for shape in ((outputs, 48), 48, 48))
    for ours, truth in (
        (turn.reading(matrix), matrix @ q),
        (turn.reading(matrix, norm), matrix @ np.diag(norm) @ q),
        (turn.writing(matrix.T), q.T @ matrix.T),
        (turn.writing(bias), q.T @ bias),
    ):
        assert ours.shape == truth.shape
        np.testing.assert_allclose(ours, truth, rtol=0, atol=1e-5)


@pytest.mark.parametrize("edit", [lambda tensors: None, add_biases])
@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("hidden", [64, 48])
def test_a_rotated_decoder_computes_what_it_did(
    hidden: int,
    tie: bool,
    edit: Callable[[dict[str, Floats]], None],
    make_runner: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = change(make_tiny_model(tmp_path, hidden=hidden, tie=tie), edit)
    truth = logits(make_runner(model=model))
    monkeypatch.setattr(weights, "ROTATED", ("float32",))
    runner = make_runner(model=model)
    assert error(logits(runner), truth) < 1e-5
    assert runner.decoder.weights.head is not runner.decoder.weights.embedding


def test_no_format_but_int8_is_rotated(make_runner: Make, tiny: Path) -> None:
    ops = make_runner().cache.ops
    for format in ops.formats:
        loaded = load(open_source(tiny), ops, format, lambda done, total: None)
        assert (loaded.head is loaded.embedding) is (format != "int8")
        assert bool(np.all(np.asarray(loaded.norm) == 1)) is (format == "int8")


@needs_int8
def test_less_is_lost_of_models_with_an_outlying_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: dict[bool, float] = {True: 0.0, False: 0.0}
    for seed in range(4):
        model = change(make_tiny_model(tmp_path / f"{seed}", hidden=256, tie=False, seed=seed), add_outliers)
        settings = WorkerConfig(model=model, kernels="cpu", dtype="float32", pages=64, max_context=512)
        truth = logits(build_runner(settings))
        for is_rotated in lost:
            monkeypatch.setattr(weights, "ROTATED", ("int8",) if is_rotated else ())
            lost[is_rotated] += error(logits(build_runner(replace(settings, weights="int8"))), truth)
    assert lost[True] < lost[False] / 2


@needs_int8
@pytest.mark.parametrize("tie", [True, False])
def test_an_engine_folder_holds_what_was_rotated(tie: bool, tmp_path: Path) -> None:
    model, folder = make_tiny_model(tmp_path / "model", tie=tie, hidden=48), tmp_path / "engine"
    folder.mkdir()
    assert main([str(model), str(folder), "--kernels", "cpu", "--weights", "int8"]) == 0
    settings = WorkerConfig(model=model, kernels="cpu", dtype="float32", weights="int8", pages=64, max_context=512)
    assert np.array_equal(logits(build_runner(replace(settings, model=folder))), logits(build_runner(settings)))
