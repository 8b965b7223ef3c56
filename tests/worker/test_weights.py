"""Reading models: what equals what, and what is refused with which sentence."""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from octavo_kernels.choice import pick
from octavo_kernels.ops import Weight
from octavo_worker.errors import ModelError
from octavo_worker.source import open_source
from octavo_worker.weights import Weights, load
from safetensors.torch import load_file, save_file

from tests.doubles.tiny_model import make_tiny_model
from tests.kernels.implementations import CPU, build
from tests.kernels.steps import count
from tests.worker.gguf_files import write_gguf

OPS = pick("cpu", "reference")


def read(path: Path) -> Weights:
    return load(open_source(path), OPS, "float32", lambda done, total: None)


def matrices(weights: Weights) -> list[np.ndarray]:
    layers = [part for layer in weights.layers for part in (layer.qkv, layer.output, layer.gate, layer.up, layer.down)]
    packed = [weight.parts["data"] for weight in (weights.embedding, weights.head, *layers)]
    norms = [norm for layer in weights.layers for norm in (layer.attention_norm, layer.feed_forward_norm)]
    return [*packed, *map(np.asarray, (weights.norm, *norms)), weights.rope_frequencies]


def copy_of(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "model"))


def test_a_gguf_file_holds_the_same_weights_as_the_folder_it_was_made_from(tiny: Path, tmp_path: Path) -> None:
    path = write_gguf(tiny, tmp_path / "tiny.gguf", matrices=gguf.GGMLQuantizationType.F32)
    for ours, truth in zip(matrices(read(path)), matrices(read(tiny)), strict=True):
        np.testing.assert_allclose(ours, truth, rtol=1e-6, atol=0)


def test_quantised_matrices_are_dequantised(tiny: Path, tmp_path: Path) -> None:
    path = write_gguf(tiny, tmp_path / "tiny.gguf", matrices=gguf.GGMLQuantizationType.Q8_0)
    for ours, truth in zip(matrices(read(path)), matrices(read(tiny)), strict=True):
        np.testing.assert_allclose(ours, truth, rtol=0, atol=np.abs(truth).max() / 127)


def test_shards_are_read_through_their_index(tiny: Path, tmp_path: Path) -> None:
    model = copy_of(tiny, tmp_path)
    tensors = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"a.safetensors": names[:7], "b.safetensors": names[7:]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, model / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    for ours, truth in zip(matrices(read(model)), matrices(read(tiny)), strict=True):
        assert np.array_equal(ours, truth)
    (model / "b.safetensors").unlink()
    with pytest.raises(ModelError, match=r"names files that are not in the folder"):
        read(model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_folders_are_read_exactly(dtype: torch.dtype, tiny: Path, tmp_path: Path) -> None:
    model = copy_of(tiny, tmp_path)
    halves = {name: tensor.to(dtype) for name, tensor in load_file(tiny / "model.safetensors").items()}
    save_file(halves, model / "model.safetensors")
    embedding = read(model).embedding.parts["data"]
    assert np.array_equal(embedding, halves["model.embed_tokens.weight"].float().numpy())
    save_file({name: tensor.to(torch.float64) for name, tensor in halves.items()}, model / "model.safetensors")
    with pytest.raises(ModelError, match=r"is F64; weights are F32, F16, BF16"):
        read(model)


def test_biases_follow_their_matrices(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path)
    tensors, made = load_file(model / "model.safetensors"), {}
    for name, width in (("q", 64), ("k", 32), ("v", 32)):
        made[name] = tensors[f"model.layers.0.self_attn.{name}_proj.bias"] = torch.randn(width)
    save_file(tensors, model / "model.safetensors")
    first, second = read(model).layers
    assert np.array_equal(first.qkv.parts["bias"], torch.cat(list(made.values())).numpy())
    assert "bias" not in second.qkv.parts


def test_the_digest_is_of_the_bytes(tiny: Path, tmp_path: Path) -> None:
    model = copy_of(tiny, tmp_path)
    assert read(model).digest == read(tiny).digest
    data = bytearray((model / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (model / "model.safetensors").write_bytes(data)
    assert read(model).digest != read(tiny).digest


def test_progress_counts_layers(tiny: Path) -> None:
    seen: list[tuple[int, int]] = []
    load(open_source(tiny), OPS, "float32", lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize("keep", [0, 4, 8, 200, 5_000, -1])
def test_truncated_safetensors_are_refused(tiny: Path, tmp_path: Path, keep: int) -> None:
    model = copy_of(tiny, tmp_path)
    data = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(data[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors is not a whole safetensors file"):
        read(model)


@pytest.mark.parametrize("keep", [0, 3, 4, 20, 30, 100, 500, 1_000, 2_000, 100_000, -1])
def test_a_truncated_gguf_is_refused(tiny: Path, tmp_path: Path, keep: int) -> None:
    path = write_gguf(tiny, tmp_path / "tiny.gguf", matrices=gguf.GGMLQuantizationType.Q8_0)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"tiny\.gguf is not a whole GGUF file"):
        read(path)


def test_any_damage_to_a_gguf_header_is_read_or_refused_but_never_crashes(tiny: Path, tmp_path: Path) -> None:
    path = write_gguf(tiny, tmp_path / "tiny.gguf", matrices=gguf.GGMLQuantizationType.F32)
    data = path.read_bytes()
    refused = 0
    for place in range(0, 2_000, 7):
        path.write_bytes(data[:place] + b"\xff" + data[place + 1 :])
        try:
            read(path)
        except ModelError:
            refused += 1
    assert refused > 100


def test_other_gguf_rope_scalings_are_refused(tiny: Path, tmp_path: Path) -> None:
    path = write_gguf(
        tiny,
        tmp_path / "tiny.gguf",
        matrices=gguf.GGMLQuantizationType.F32,
        llama__rope__scaling__type="longrope",
    )
    with pytest.raises(ModelError, match="rope scaling 'longrope' is not supported; none, linear, yarn are"):
        read(path)


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere does not exist"):
        read(tmp_path / "nowhere")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("hello")
    with pytest.raises(ModelError, match=r"neither a Hugging Face folder nor a \.gguf file"):
        read(tmp_path / "model.txt")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "config.json cannot be read"),
        ({"config.json": "{"}, "config.json cannot be read"),
        ({"config.json": "[]"}, "does not hold an object"),
        ({"config.json": "{}"}, r"holds no \*.safetensors file"),
        ({"config.json": "{}", "pytorch_model.bin": ""}, "holds only pickled weights, which are never read"),
    ],
)
def test_folders_without_readable_weights_are_refused(files: dict[str, str], sentence: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=sentence):
        read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "architecture MambaForCausalLM is not supported"),
        ({"hidden_act": "gelu"}, "only SiLU"),
        ({"mlp_bias": True}, "mlp_bias = True, which this decoder does not compute"),
        ({"hidden_size": "wide"}, "has a bad one"),
        ({"num_key_value_heads": 3}, "contradict each other"),
        ({"num_hidden_layers": 3}, r"lacks tensor model\.layers\.2\.input_layernorm\.weight"),
        ({"tie_word_embeddings": False}, r"lacks tensor lm_head\.weight"),
        ({"intermediate_size": 127}, r"gate_proj\.weight of .* has shape \(128, 64\), expected \(127, 64\)"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(
    changes: dict[str, object], sentence: str, tiny: Path, tmp_path: Path
) -> None:
    model = copy_of(tiny, tmp_path)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ModelError, match=sentence):
        read(model)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("name", CPU)
def test_blocks_that_are_kept_hold_the_values_of_the_file_query_and_key_rows_in_order(
    name: str, kind: str, tiny: Path, tmp_path: Path
) -> None:
    path = write_gguf(tiny, tmp_path / "tiny.gguf", matrices=gguf.GGMLQuantizationType[kind])
    ops, truth = build(name), read(path)
    kept = load(open_source(path), ops, "int4", lambda done, total: None)
    for ours, theirs in ((kept.embedding, truth.embedding), *zip(weights_of(kept), weights_of(truth), strict=True)):
        assert ours.format == {"Q8_0": "int8_groups"}.get(kind, "int4")
        rows = ops.new_buffer((ours.outputs, ours.inputs), "float32")
        ops.embed(count(ours.outputs), ours, np.arange(ours.outputs, dtype=np.int32), rows)
        np.testing.assert_allclose(np.asarray(rows), theirs.parts["data"], rtol=0, atol=1e-6)


def weights_of(weights: Weights) -> list[Weight]:
    return [getattr(layer, name) for layer in weights.layers for name in ("qkv", "output", "gate", "up", "down")]
