"""Weights of a decoder, in the shape and the format in which the kernels use them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from octavo_kernels.ops import Array, Ops, Weight

from octavo_worker.architecture import Architecture
from octavo_worker.errors import ModelError
from octavo_worker.group.shard import WHOLE, Part, Shard, all_of
from octavo_worker.manifest import digest_of
from octavo_worker.rotation import rotation
from octavo_worker.source import Source, Tensor, floats, joined

Progress = Callable[[int, int], None]  # (layers read, layers in all)
ROTATED = ("int8",)
"""Formats whose activations are rounded, a row with one scale: the residual stream is rotated for them."""
EMBEDDING, NORM, HEAD = "model.embed_tokens", "model.norm", "lm_head"


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
    """All weights of a decoder, or of one rank's part of it. A tied head is the embedding itself, unless they are rotated
    or the head is a part."""

    architecture: Architecture
    embedding: Weight
    layers: list[Layer]
    norm: Array
    head: Weight
    rope_frequencies: np.ndarray  # float32 [head_dim / 2]
    digest: bytes  # SHA-256 over the bytes of the files; see also Shard.digest


def load(source: Source, ops: Ops, format: str, progress: Progress, shard: Shard = WHOLE) -> Weights:
    """Read everything and pack what belongs to this rank, matrix by matrix. Raises ModelError if a tensor is missing, has
    another shape than the architecture says, or is of no use, ConfigError if the model cannot be shared out so."""
    a, own, reader = source.architecture, shard.of(source.architecture, format), Reader(source, ops, format, shard)

    def layer(index: int) -> Layer:
        made = reader.layer(index)
        progress(index + 1, a.layers)
        return made

    embedding = reader.reading({EMBEDDING: all_of(a.vocab)})
    shares = source.is_tied and reader.rotation is None and shard.size == 1
    head = {EMBEDDING if source.is_tied else HEAD: shard.vocabulary(a)}
    weights = Weights(
        architecture=own,
        embedding=embedding,
        layers=[layer(index) for index in range(a.layers)],
        norm=reader.norm(NORM),
        head=embedding if shares else reader.reading(head, NORM),
        rope_frequencies=source.rope_frequencies(),
        digest=shard.digest(digest_of(source.files), format),
    )
    if strange := source.left_over(reader.taken):
        raise ModelError(f"{source.path} has tensors that this decoder has no use for, {strange[0]!a} among them")
    return weights


class Reader:
    """Reads tensors, checks their shapes, takes a rank's part, rotates the residual that they read and write if need be, and
    packs them."""

    def __init__(self, source: Source, ops: Ops, format: str, shard: Shard) -> None:
        self.source, self.ops, self.format, self.shard = source, ops, format, shard
        self.rotation = rotation(source.architecture.hidden) if format in ROTATED else None
        self.taken: set[str] = set()

    def layer(self, index: int) -> Layer:
        """All of one layer."""
        a = self.source.architecture
        prefix = f"model.layers.{index}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        before_attention, before_mlp = f"{prefix}.input_layernorm", f"{prefix}.post_attention_layernorm"
        q, kv, inner = self.shard.queries(a), self.shard.keys(a), self.shard.inner(a)
        return Layer(
            attention_norm=self.norm(before_attention),
            qkv=self.reading(
                {f"{attention}.{n}_proj": w for n, w in (("q", q), ("k", kv), ("v", kv))}, before_attention
            ),
            output=self.writing(f"{attention}.o_proj", q),
            feed_forward_norm=self.norm(before_mlp),
            gate=self.reading({f"{mlp}.gate_proj": inner}, before_mlp),
            up=self.reading({f"{mlp}.up_proj": inner}, before_mlp),
            down=self.writing(f"{mlp}.down_proj", inner),
        )

    def reading(self, outputs: dict[str, Part], norm: str | None = None) -> Weight:
        """These rows of the matrices named, as one that reads the residual, behind a norm or as it is."""
        rows, bias = self.matrix(outputs, all_of(self.source.architecture.hidden))
        if self.rotation:
            rows = self.rotation.reading(floats(rows), None if norm is None else self.norm_weight(norm))
        return self.ops.pack(rows, bias, self.format_of(rows))

    def writing(self, name: str, inputs: Part) -> Weight:
        """These columns of the matrix named, whose outputs are added to the residual. Rank 0 alone adds its bias."""
        rows, bias = self.matrix({name: all_of(self.source.architecture.hidden)}, inputs)
        bias = bias if self.shard.rank == 0 else None
        if self.rotation:
            rows = self.rotation.writing(floats(rows))
            bias = None if bias is None else self.rotation.writing(bias)
        return self.ops.pack(rows, bias, self.format_of(rows))

    def matrix(self, outputs: dict[str, Part], inputs: Part) -> tuple[Tensor, np.ndarray | None]:
        """Parts of the matrices named, one below the other; of their biases as well, if there are any."""
        matrices = [(part, self.take(f"{name}.weight", part.whole, inputs.whole)) for name, part in outputs.items()]
        rows = joined([inputs.of_columns(part.of_rows(matrix)) for part, matrix in matrices])
        biases = {f"{name}.bias": part for name, part in outputs.items()}
        has_bias = any(self.source.has(name) for name in biases)
        bias = (
            [floats(part.of_rows(self.take(name, part.whole))) for name, part in biases.items()] if has_bias else None
        )
        return rows, None if bias is None else np.concatenate(bias)

    def format_of(self, rows: Tensor) -> str:
        """Where 4 bits are asked for, what the file holds in blocks or groups keeps its values, in 4 bits or 8."""
        return rows.format if self.format == "int4" and not isinstance(rows, np.ndarray) else self.format

    def norm(self, name: str) -> Array:
        """What the kernels multiply by: ones, where the weight went into the matrices behind the norm."""
        weight = self.norm_weight(name)
        return self.ops.share(np.ones_like(weight) if self.rotation else np.array(weight))

    def norm_weight(self, name: str) -> np.ndarray:
        return floats(self.take(f"{name}.weight", self.source.architecture.hidden))

    def take(self, name: str, *shape: int) -> Tensor:
        if not self.source.has(name):
            raise ModelError(f"{self.source.path} lacks tensor {name}")
        self.taken.add(name)
        tensor = self.source.read(name)
        if tensor.shape != shape:
            raise ModelError(f"tensor {name} of {self.source.path} has shape {tensor.shape}, expected {shape}")
        return tensor
