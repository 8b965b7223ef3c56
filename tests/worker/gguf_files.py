"""Turns a tiny model folder into a GGUF file, as llama.cpp's converter would."""

import json
from pathlib import Path

import gguf
import numpy as np
from octavo_worker.source import gguf_name
from safetensors.numpy import load_file


def write_gguf(
    folder: Path,
    path: Path,
    *,
    matrices: gguf.GGMLQuantizationType,
    has_vocabulary: bool = False,
    **metadata: str | float,
) -> Path:
    """Matrices in the type given, vectors in float32. `metadata`: further strings, integers and floats. With the vocabulary
    a scheduler can serve it, too."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if has_vocabulary:
        add_vocabulary(writer, folder)
    else:
        writer.add_token_list(["a", "b"])
    for key, value in metadata.items():
        name = key.replace("__", ".")
        match value:
            case str():
                writer.add_string(name, value)
            case int():
                writer.add_uint32(name, value)
            case float():
                writer.add_float32(name, value)
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.endswith("q_proj.weight"):
            tensor = permute(tensor, config["num_attention_heads"])
        if name.endswith("k_proj.weight"):
            tensor = permute(tensor, config["num_key_value_heads"])
        kind = matrices if tensor.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_vocabulary(writer: gguf.GGUFWriter, folder: Path) -> None:
    """The tokenizer of the folder, and its template."""
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    control = {token["content"] for token in content["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in control else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(json.loads((folder / "tokenizer_config.json").read_text())["chat_template"])


def permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """As in llama.cpp's convert_hf_to_gguf."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
