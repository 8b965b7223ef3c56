"""Folders with matrices in 4 bits, as AWQ and GPTQ write them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from octavo_kernels.int4 import AWQ_ORDER, Int4
from octavo_kernels.ops import Ops, Weight
from octavo_worker.errors import ModelError
from octavo_worker.source import open_source
from octavo_worker.weights import Weights, load
from safetensors.numpy import load_file, save_file

from tests.doubles.tiny_model import make_tiny_model
from tests.kernels.implementations import CPU, build
from tests.kernels.triton.linear_cases import unpacked
from tests.kernels.triton.packing import words_of

GROUP = 32
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": False}
KINDS = {"awq": AWQ, "gptq": GPTQ, "gptq_v2": GPTQ | {"checkpoint_format": "gptq_v2"}}


def quantised(rng: np.random.Generator, matrix: np.ndarray, *, in_order: bool) -> Int4:
    """A matrix near this one."""
    outputs, inputs = matrix.shape
    groups = inputs // GROUP
    group_of = np.repeat(np.arange(groups, dtype=np.int32), GROUP)
    scale = np.full((groups, outputs), np.abs(matrix).max() / 7, np.float16)
    zero = rng.integers(6, 10, (groups, outputs), np.uint8)
    group_of = group_of if in_order else np.random.default_rng(0).permutation(group_of)
    q = np.rint(matrix / scale[group_of].T.astype(np.float32)) + zero[group_of].T
    return Int4(q.clip(0, 15).astype(np.uint8), scale, zero, group_of)


def tensors_of(name: str, matrix: Int4, kind: str) -> dict[str, np.ndarray]:
    """As the checkpoint has them."""
    if kind == "awq":
        made = {"qweight": words_of(matrix.q.T, AWQ_ORDER), "qzeros": words_of(matrix.zero, AWQ_ORDER)}
    else:
        zero = matrix.zero if kind == "gptq_v2" else matrix.zero - 1
        made = {"qweight": words_of(matrix.q).T, "qzeros": words_of(zero), "g_idx": matrix.group_of}
    return {f"{name}.{part}": np.ascontiguousarray(array) for part, array in (made | {"scales": matrix.scale}).items()}


def write(folder: Path, kind: str, **changes: object) -> tuple[Path, dict[str, Int4]]:
    """A tiny model whose layers are quantised, and their matrices."""
    make_tiny_model(folder)
    rng = np.random.default_rng(1)
    tensors: dict[str, np.ndarray] = {}
    matrices: dict[str, Int4] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        if stem.endswith("_proj"):
            matrices[stem] = quantised(rng, tensor.astype(np.float32), in_order=kind == "awq")
            tensors |= tensors_of(stem, matrices[stem], kind)
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = KINDS[kind] | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder, matrices


def read(path: Path, ops: Ops, format: str) -> Weights:
    return load(open_source(path), ops, format, lambda done, total: None)


def first_layer(weights: Weights) -> dict[str, Weight]:
    layer = weights.layers[0]
    return {"o": layer.output, "gate": layer.gate, "up": layer.up, "down": layer.down, "qkv": layer.qkv}


def truth_of(matrices: dict[str, Int4]) -> dict[str, np.ndarray]:
    floats = {stem.rsplit(".", 1)[1]: matrix.floats() for stem, matrix in matrices.items() if ".layers.0." in stem}
    qkv = np.concatenate([floats[f"{name}_proj"] for name in "qkv"])
    return {"qkv": qkv} | {name: floats[f"{name}_proj"] for name in ("o", "gate", "up", "down")}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_in_4_bits_are_the_very_values_of_the_checkpoint(kind: str, tmp_path: Path) -> None:
    folder, matrices = write(tmp_path, kind)
    truth = truth_of(matrices)
    for name, weight in first_layer(read(folder, build("triton"), "int4")).items():
        assert weight.format == "int4"
        np.testing.assert_allclose(unpacked(weight).numpy(), truth[name], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_other_kernels_and_formats_are_given_their_floats(kind: str, tmp_path: Path) -> None:
    folder, matrices = write(tmp_path, kind)
    truth = truth_of(matrices)
    for name, weight in first_layer(read(folder, build("reference"), "float32")).items():
        assert np.array_equal(weight.parts["data"], truth[name])


@pytest.mark.skipif(not CPU, reason="the C kernels are not built here")
def test_c_kernels_pack_them_again(tmp_path: Path) -> None:
    folder, _ = write(tmp_path, "awq")
    assert {weight.format for weight in first_layer(read(folder, build(CPU[0]), "int4")).values()} == {"int4"}


def test_an_engine_folder_made_of_it_says_nothing_of_the_checkpoint(tmp_path: Path) -> None:
    assert "quantization_config" not in open_source(write(tmp_path, "awq")[0]).config


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("awq", {"quant_method": "bitsandbytes"}, "weights quantised by 'bitsandbytes' are not supported"),
        ("awq", {"version": "gemv"}, "awq in the layout 'gemv' is not supported; gemm are"),
        ("gptq", {"bits": 8}, "gptq in 8 bits is not supported; 4 bits are"),
        ("gptq", {"checkpoint_format": "marlin"}, "gptq in the layout 'marlin' is not supported"),
        ("awq", {"group_size": 48}, "awq in groups of 48 inputs is not supported; multiples of 32 and -1 are"),
    ],
)
def test_what_is_not_known_is_refused(kind: str, changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    folder, _ = write(tmp_path, kind, **changes)
    with pytest.raises(ModelError, match=sentence):
        open_source(folder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [64, 128, -1])
def test_WL06_groups_of_another_size_than_the_configuration_says_are_refused(
    kind: str, size: int, tmp_path: Path
) -> None:
    """Of 96 inputs in groups of 64 the second group is short; two even groups of 48 they are not."""
    folder, _ = write(tmp_path, kind, group_size=size)
    with pytest.raises(ModelError, match=f"q_proj has 2 groups for 64 inputs, and config.json says groups of {size}"):
        read(folder, build("reference"), "float32")


def test_a_matrix_that_lacks_its_scales_or_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    folder, _ = write(tmp_path, "awq")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj"
    save_file(
        {each: array for each, array in tensors.items() if each != f"{name}.scales"}, folder / "model.safetensors"
    )
    with pytest.raises(ModelError, match=f"{name} is quantised and lacks its scales"):
        read(folder, build("reference"), "float32")
    save_file(tensors | {f"{name}.scales": tensors[f"{name}.scales"][:, :8].copy()}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=f"{name} does not fit together: scales are of"):
        read(folder, build("reference"), "float32")
