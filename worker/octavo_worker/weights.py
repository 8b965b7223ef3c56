"""Weights of a decoder, from a Hugging Face folder or a GGUF file, in the shape the decoder uses them."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from octavo_worker.architecture import Architecture, from_gguf, from_huggingface
from octavo_worker.errors import ModelError
from octavo_worker.folder import Folder
from octavo_worker.gguf_file import GgufFile

Progress = Callable[[int, int], None]  # (layers read, layers in all)


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer; matrices are [out, in]. Query, key and value rows follow each other, as do gate and up."""

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    feed_forward_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a decoder. A tied head is the embedding itself."""

    architecture: Architecture
    embedding: Tensor
    layers: list[Layer]
    norm: Tensor
    head: Tensor
    rope_frequencies: Tensor  # float32 [head_dim / 2]
    digest: bytes  # SHA-256 over the bytes of the files


class Source(Protocol):
    """Where tensors come from, under the names of Hugging Face's Llama."""

    architecture: Architecture
    files: list[Path]
    is_tied: bool  # the head is the embedding

    def has(self, name: str) -> bool: ...
    def read(self, name: str) -> Tensor: ...
    def rope_frequencies(self) -> Tensor: ...


class FolderSource:
    """Tensors of a Hugging Face folder."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)
        self.architecture = from_huggingface(self.folder.config)
        self.files = [path / "config.json", *self.folder.weight_files]
        self.is_tied = bool(self.folder.config.get("tie_word_embeddings", False))

    def has(self, name: str) -> bool:
        return name in self.folder.shard_of

    def read(self, name: str) -> Tensor:
        return self.folder.read(name)

    def rope_frequencies(self) -> Tensor:
        return self.architecture.rope.frequencies(self.architecture.head_dim)


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight"""
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, index, part = stem.split(".", 3)
        return f"blk.{index}.{GGUF_NAMES[part]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


class GgufSource:
    """Tensors of a GGUF file, dequantised."""

    def __init__(self, path: Path) -> None:
        self.file = GgufFile(path)
        embedding = self.file.places.get("token_embd.weight")
        if embedding is None:
            raise ModelError(f"{path} holds no token_embd.weight; it is no language model")
        self.architecture = from_gguf(self.file.metadata, embedding.shape[0])
        self.files = [path]
        self.is_tied = "output.weight" not in self.file.places

    def has(self, name: str) -> bool:
        return gguf_name(name) in self.file.places

    def read(self, name: str) -> Tensor:
        tensor = torch.from_numpy(self.file.read(gguf_name(name)))
        if ".q_proj." in name:
            return unpermute(tensor, self.architecture.heads)
        if ".k_proj." in name:
            return unpermute(tensor, self.architecture.kv_heads)
        return tensor

    def rope_frequencies(self) -> Tensor:
        frequencies = self.architecture.rope.frequencies(self.architecture.head_dim)
        if "rope_freqs.weight" in self.file.places:  # Llama 3's scaling, as divisors
            frequencies = frequencies / torch.from_numpy(self.file.read("rope_freqs.weight"))
        return frequencies


def unpermute(rows: Tensor, heads: int) -> Tensor:
    """GGUF interleaves the two halves of each query and key head, to rotate pairs; put them side by side again."""
    return rows.view(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def open_source(path: Path) -> Source:
    """Raises ModelError with one sentence."""
    if path.is_dir():
        return FolderSource(path)
    if not path.exists():
        raise ModelError(f"model path {path} does not exist")
    if path.suffix.lower() != ".gguf":
        raise ModelError(f"{path} is neither a Hugging Face folder nor a .gguf file")
    return GgufSource(path)


def load(path: Path, dtype: torch.dtype, device: torch.device, progress: Progress) -> Weights:
    """Read everything. Raises ModelError if a tensor is missing or has another shape than the architecture says."""
    source = open_source(path)
    a = source.architecture
    q_width, kv_width = a.heads * a.head_dim, a.kv_heads * a.head_dim

    def take(name: str, *shape: int) -> Tensor:
        if not source.has(name):
            raise ModelError(f"{path} lacks tensor {name}")
        tensor = source.read(name)
        if tensor.shape != shape:
            raise ModelError(f"tensor {name} of {path} has shape {tuple(tensor.shape)}, expected {shape}")
        return tensor.to(device=device, dtype=dtype).contiguous()

    def biases(prefix: str, widths: dict[str, int]) -> Tensor | None:
        names = {f"{prefix}.{part}_proj.bias": width for part, width in widths.items()}
        there = [source.has(name) for name in names]
        return torch.cat([take(name, width) for name, width in names.items()]) if any(there) else None

    def layer(index: int) -> Layer:
        prefix = f"model.layers.{index}"
        attention, mlp, qkv = f"{prefix}.self_attn", f"{prefix}.mlp", {"q": q_width, "k": kv_width, "v": kv_width}
        result = Layer(
            attention_norm=take(f"{prefix}.input_layernorm.weight", a.hidden),
            qkv=torch.cat([take(f"{attention}.{part}_proj.weight", width, a.hidden) for part, width in qkv.items()]),
            qkv_bias=biases(attention, qkv),
            output=take(f"{attention}.o_proj.weight", a.hidden, q_width),
            output_bias=biases(attention, {"o": a.hidden}),
            feed_forward_norm=take(f"{prefix}.post_attention_layernorm.weight", a.hidden),
            gate_up=torch.cat([take(f"{mlp}.{part}_proj.weight", a.intermediate, a.hidden) for part in ("gate", "up")]),
            down=take(f"{mlp}.down_proj.weight", a.hidden, a.intermediate),
        )
        progress(index + 1, a.layers)
        return result

    embedding = take("model.embed_tokens.weight", a.vocab, a.hidden)
    return Weights(
        architecture=a,
        embedding=embedding,
        layers=[layer(index) for index in range(a.layers)],
        norm=take("model.norm.weight", a.hidden),
        head=embedding if source.is_tied else take("lm_head.weight", a.vocab, a.hidden),
        rope_frequencies=source.rope_frequencies().to(device),
        digest=digest_of(source.files),
    )


def digest_of(files: list[Path]) -> bytes:
    """SHA-256 over the bytes of the files, one after the other."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.digest()
