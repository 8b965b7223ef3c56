"""Weights of a decoder, in the shape and the format in which the kernels use them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from octavo_kernels.ops import Array, Blocks, Ops, Weight

from octavo_worker.architecture import Architecture
from octavo_worker.errors import ModelError
from octavo_worker.manifest import digest_of
from octavo_worker.source import Source, Tensor, floats, joined

Progress = Callable[[int, int], None]  # (layers read, layers in all)


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. Query, key and value rows follow each other. Norms are float32."""

    attention_norm: Array
    qkv: Weight
    output: Weight
    feed_forward_norm: Array
    gate: Weight
    up: Weight
    down: Weight


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a decoder. A tied head is the embedding itself."""

    architecture: Architecture
    embedding: Weight
    layers: list[Layer]
    norm: Array
    head: Weight
    rope_frequencies: np.ndarray  # float32 [head_dim / 2]
    digest: bytes  # SHA-256 over the bytes of the files


def load(source: Source, ops: Ops, format: str, progress: Progress) -> Weights:
    """Read everything and pack it, matrix by matrix. Raises ModelError if a tensor is missing or has another shape than
    the architecture says."""
    a, reader = source.architecture, Reader(source, ops, format)

    def layer(index: int) -> Layer:
        made = reader.layer(index)
        progress(index + 1, a.layers)
        return made

    embedding = reader.matrix({"model.embed_tokens": a.vocab}, a.hidden)
    return Weights(
        architecture=a,
        embedding=embedding,
        layers=[layer(index) for index in range(a.layers)],
        norm=reader.norm("model.norm"),
        head=embedding if source.is_tied else reader.matrix({"lm_head": a.vocab}, a.hidden),
        rope_frequencies=source.rope_frequencies(),
        digest=digest_of(source.files),
    )


class Reader:
    """Reads tensors, checks their shapes and packs them."""

    def __init__(self, source: Source, ops: Ops, format: str) -> None:
        self.source, self.ops, self.format = source, ops, format

    def layer(self, index: int) -> Layer:
        """All of one layer."""
        a = self.source.architecture
        prefix = f"model.layers.{index}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        q, kv = a.q_width, a.kv_width
        return Layer(
            attention_norm=self.norm(f"{prefix}.input_layernorm"),
            qkv=self.matrix({f"{attention}.{n}_proj": w for n, w in (("q", q), ("k", kv), ("v", kv))}, a.hidden),
            output=self.matrix({f"{attention}.o_proj": a.hidden}, q),
            feed_forward_norm=self.norm(f"{prefix}.post_attention_layernorm"),
            gate=self.matrix({f"{mlp}.gate_proj": a.intermediate}, a.hidden),
            up=self.matrix({f"{mlp}.up_proj": a.intermediate}, a.hidden),
            down=self.matrix({f"{mlp}.down_proj": a.hidden}, a.intermediate),
        )

    def matrix(self, outputs: dict[str, int], inputs: int) -> Weight:
        """The matrices named, with so many rows each, as one; biases as well, if there are any."""
        rows = joined([self.take(f"{name}.weight", width, inputs) for name, width in outputs.items()])
        biases = {f"{name}.bias": width for name, width in outputs.items()}
        has_bias = any(self.source.has(name) for name in biases)
        bias = [floats(self.take(name, width)) for name, width in biases.items()] if has_bias else None
        return self.ops.pack(rows, None if bias is None else np.concatenate(bias), self.format_of(rows))

    def format_of(self, rows: Tensor) -> str:
        """Where 4 bits are asked for, what the file holds in blocks keeps its values, in 4 bits or 8."""
        return rows.format if self.format == "int4" and isinstance(rows, Blocks) else self.format

    def norm(self, name: str) -> Array:
        return self.ops.share(np.array(floats(self.take(f"{name}.weight", self.source.architecture.hidden))))

    def take(self, name: str, *shape: int) -> Tensor:
        if not self.source.has(name):
            raise ModelError(f"{self.source.path} lacks tensor {name}")
        tensor = self.source.read(name)
        if tensor.shape != shape:
            raise ModelError(f"tensor {name} of {self.source.path} has shape {tensor.shape}, expected {shape}")
        return tensor
