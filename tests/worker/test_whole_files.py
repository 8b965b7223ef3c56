"""Every tensor of a model is used exactly once, or the model is refused."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from octavo_kernels.choice import pick
from octavo_worker.errors import ConfigError, ModelError
from octavo_worker.gguf_file import GgufFile
from octavo_worker.group.shard import Shard
from octavo_worker.source import floats, open_source
from octavo_worker.weights import Weights, load
from safetensors.numpy import load_file, save_file

from tests.doubles.tiny_model import make_tiny_model
from tests.worker.gguf_files import write_gguf

OPS = pick("cpu", "reference")


def read(path: Path) -> Weights:
    return load(open_source(path), OPS, "float32", lambda done, total: None)


def with_tensors(folder: Path, **changes: np.ndarray | None) -> Path:
    """The folder with these tensors added, replaced, or (None) taken away; a double underscore stands for a dot."""
    tensors = load_file(folder / "model.safetensors")
    for name, array in changes.items():
        tensors.pop(name.replace("__", "."), None)
        if array is not None:
            tensors[name.replace("__", ".")] = array
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_WL01_a_tied_checkpoint_is_the_same_with_a_head_of_its_own_and_without(tmp_path: Path) -> None:
    plain = read(make_tiny_model(tmp_path / "a"))
    extra = read(with_tensors(make_tiny_model(tmp_path / "b"), lm_head__weight=np.ones((320, 64), np.float32)))
    assert extra.head is extra.embedding
    assert np.array_equal(extra.head.parts["data"], plain.head.parts["data"])


LAYER = ("input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
ATTENTION = tuple(f"self_attn.{name}_proj" for name in "qkvo")
NAMES = ["model.embed_tokens.weight", "model.norm.weight", *(f"model.layers.0.{n}.weight" for n in LAYER + ATTENTION)]


@pytest.mark.parametrize("name", NAMES)
def test_WL02_a_tensor_that_is_missing_or_of_another_shape_is_a_start_error(name: str, tmp_path: Path) -> None:
    key = name.replace(".", "__")
    folder = with_tensors(make_tiny_model(tmp_path / "a", layers=1), **{key: None})
    with pytest.raises(ModelError, match=f"lacks tensor {name}"):
        read(folder)
    folder = with_tensors(make_tiny_model(tmp_path / "b", layers=1), **{key: np.ones((3, 3), np.float32)})
    with pytest.raises(ModelError, match=r"has shape \(3, 3\), expected"):
        read(folder)


def test_WL02_a_head_that_is_missing_and_not_tied_is_a_start_error(tmp_path: Path) -> None:
    folder = with_tensors(make_tiny_model(tmp_path, tie=False), lm_head__weight=None)
    with pytest.raises(ModelError, match=r"lacks tensor lm_head\.weight"):
        read(folder)


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.q_norm.weight", "model.layers.2.mlp.up_proj.weight", "model.norm.bias", "x"]
)
def test_WL02_a_tensor_that_nobody_takes_is_a_start_error(name: str, tmp_path: Path) -> None:
    folder = with_tensors(make_tiny_model(tmp_path), **{name.replace(".", "__"): np.ones(16, np.float32)})
    with pytest.raises(ModelError, match=f"has tensors that this decoder has no use for, '{name}' among them"):
        read(folder)


def test_WL02_tables_that_follow_from_the_configuration_may_be_there(tmp_path: Path) -> None:
    name = "model__layers__0__self_attn__rotary_emb__inv_freq"
    assert read(with_tensors(make_tiny_model(tmp_path), **{name: np.ones(8, np.float32)}))


def tensors_in(
    path: Path, kinds: dict[str, gguf.GGMLQuantizationType], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Writes a GGUF file with a tensor of each type; the values that the format's own package reads."""
    writer, truth = gguf.GGUFWriter(path, "llama"), {}
    for name, kind in kinds.items():
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        columns = 256 // elements * size
        raw = rng.integers(0, 60, (3, columns), np.uint8)  # small numbers in every format
        writer.add_tensor(name, raw, raw_dtype=kind)
        truth[name] = gguf.quants.dequantize(raw, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return truth


FORMATS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]


def test_WL08_WL09_a_file_of_all_types_is_read_each_tensor_as_its_own_type(tmp_path: Path) -> None:
    kinds = {f"t.{name}": gguf.GGMLQuantizationType[name] for name in FORMATS}
    truth = tensors_in(tmp_path / "all.gguf", kinds, np.random.default_rng(0))
    file = GgufFile(tmp_path / "all.gguf")
    for name, expected in truth.items():
        assert np.array_equal(floats(file.read(name)), expected.reshape(3, 256)), name


def test_WL09_a_type_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path) -> None:
    path = write_gguf(make_tiny_model(tmp_path / "m"), tmp_path / "m.gguf", matrices=gguf.GGMLQuantizationType.F32)
    data, header = bytearray(path.read_bytes()), b"output_norm.weight\x01\0\0\0" + (64).to_bytes(8, "little")
    at = data.index(header) + len(header)
    data[at : at + 4] = int(gguf.GGMLQuantizationType.I32).to_bytes(4, "little")  # of the same size as float32
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"tensor 'output_norm\.weight' of .* is I32, which cannot be read"):
        read(path)


@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(52, 52, 8), (28, 4, 3), (25, 25, 2), (12, 4, 5), (9, 3, 2)])
def test_WL10_a_model_that_ranks_cannot_share_is_refused_before_its_weights_with_what_would_do(
    heads: int, kv_heads: int, size: int, tmp_path: Path
) -> None:
    folder = make_tiny_model(tmp_path, heads=2, kv_heads=2)
    config = json.loads((folder / "config.json").read_text())
    changes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": 960}
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ConfigError, match=rf"--tensor-parallel-size {size} does not divide this model: .* would do"):
        Shard(0, size).of(open_source(folder).architecture)
