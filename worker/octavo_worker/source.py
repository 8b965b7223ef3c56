"""Where weights come from, tensor by tensor: a Hugging Face folder or a GGUF file, under Hugging Face's names."""

from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from octavo_kernels.int4 import Int4, below
from octavo_kernels.ops import Blocks, Values

from octavo_worker.architecture import Architecture, from_gguf, from_huggingface
from octavo_worker.errors import ModelError
from octavo_worker.folder import Folder
from octavo_worker.quantised import quantised_name, reader_of

Tensor: TypeAlias = Values
"""float32, or a matrix that is quantised already."""


class Source(Protocol):
    """An open model."""

    path: Path
    architecture: Architecture
    files: list[Path]
    config: dict[str, Any]  # as in Hugging Face's config.json
    is_tied: bool  # the head is the embedding

    def has(self, name: str) -> bool: ...
    def read(self, name: str) -> Tensor: ...
    def left_over(self, taken: set[str]) -> list[str]: ...  # tensors that would change the answer, had they been taken
    def rope_frequencies(self) -> np.ndarray: ...


class FolderSource:
    """Tensors of a Hugging Face folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = Folder(path)
        self.config = dict(self.folder.config)
        self.read_quantised = reader_of(self.config.pop("quantization_config", None))
        self.architecture = from_huggingface(self.config)
        self.files = [path / "config.json", *self.folder.weight_files]
        self.is_tied = bool(self.config.get("tie_word_embeddings", False))

    def has(self, name: str) -> bool:
        return name in self.folder.shard_of or quantised_name(name) in self.folder.shard_of

    def read(self, name: str) -> Tensor:
        if name in self.folder.shard_of or self.read_quantised is None:
            return self.folder.read(name)
        return self.read_quantised(self.folder, name.removesuffix(".weight"))

    def left_over(self, taken: set[str]) -> list[str]:
        stems = {quantised_name(name).removesuffix("qweight") for name in taken} if self.read_quantised else set[str]()
        unused = [
            name for name in self.folder.shard_of if name not in taken and name.rpartition(".")[0] + "." not in stems
        ]
        ignored = (*TABLES, "lm_head.weight") if self.is_tied else TABLES
        return sorted(name for name in unused if not name.endswith(ignored))

    def rope_frequencies(self) -> np.ndarray:
        return self.architecture.rope.frequencies(self.architecture.head_dim)


TABLES = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")
"""Which old checkpoints hold, and which follow from config.json."""

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
    """Tensors of a GGUF file."""

    def __init__(self, path: Path) -> None:
        from octavo_worker.gguf_file import GgufFile  # it imports what others need not wait for

        self.path = path
        self.file = GgufFile(path)
        embedding = self.file.places.get("token_embd.weight")
        if embedding is None:
            raise ModelError(f"{path} holds no token_embd.weight; it is no language model")
        self.architecture = from_gguf(self.file.metadata, embedding.shape[0])
        self.files = [path]
        self.is_tied = "output.weight" not in self.file.places
        self.config = self.architecture.as_huggingface() | {"tie_word_embeddings": self.is_tied}

    def has(self, name: str) -> bool:
        return gguf_name(name) in self.file.places

    def read(self, name: str) -> Tensor:
        tensor = self.file.read(gguf_name(name))
        if ".q_proj." in name:
            return unpermute(tensor, self.architecture.heads)
        if ".k_proj." in name:
            return unpermute(tensor, self.architecture.kv_heads)
        return tensor

    def left_over(self, taken: set[str]) -> list[str]:
        return sorted(set(self.file.places) - {gguf_name(name) for name in taken} - {"rope_freqs.weight"})

    def rope_frequencies(self) -> np.ndarray:
        frequencies = self.architecture.rope.frequencies(self.architecture.head_dim)
        if "rope_freqs.weight" in self.file.places:  # Llama 3's scaling, as divisors
            divisors = floats(self.file.read("rope_freqs.weight"))
            if divisors.shape != frequencies.shape or not (divisors > 0).all():
                raise ModelError(f"{self.path} has rope_freqs.weight that do not fit its heads")
            frequencies = frequencies / divisors
        return frequencies


def unpermute(tensor: np.ndarray | Blocks, heads: int) -> np.ndarray | Blocks:
    """GGUF interleaves the two halves of each query and key head, to rotate pairs; put them side by side again."""
    if isinstance(tensor, Blocks):
        return Blocks(tensor.kind, unpermuted(tensor.data, heads))
    return unpermuted(tensor, heads)


def unpermuted(rows: np.ndarray, heads: int) -> np.ndarray:
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def floats(tensor: Tensor) -> np.ndarray:
    """In float32."""
    return tensor if isinstance(tensor, np.ndarray) else tensor.floats()


def joined(tensors: list[Tensor]) -> Tensor:
    """One below the other; quantised if all are blocks of one kind, or have the same groups."""
    if len(tensors) == 1:
        return tensors[0]
    groups = [tensor for tensor in tensors if isinstance(tensor, Int4)]
    if len(groups) == len(tensors) and all(np.array_equal(each.group_of, groups[0].group_of) for each in groups):
        return below(groups)
    blocks = [tensor for tensor in tensors if isinstance(tensor, Blocks)]
    if len(blocks) == len(tensors) and len({each.kind for each in blocks}) == 1:
        return Blocks(blocks[0].kind, np.concatenate([each.data for each in blocks]))
    return np.concatenate([floats(tensor) for tensor in tensors])


def open_source(path: Path) -> Source:
    """Raises ModelError with one sentence."""
    if path.is_dir():
        return FolderSource(path)
    if not path.exists():
        raise ModelError(f"model path {path} does not exist")
    if path.suffix.lower() != ".gguf":
        raise ModelError(f"{path} is neither a Hugging Face folder nor a .gguf file")
    return GgufSource(path)
