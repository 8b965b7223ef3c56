"""Engine folders: weights in the kernels' own layout, read as they lie. `octavo prepare` writes them.

config.json           the architecture, as Hugging Face writes it
weights.safetensors   parts of each weight, norms, rope_frequencies; its metadata names each weight's format
manifest.json         kernels, formats, digests
tokenizer.json, …     what the scheduler needs
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from octavo_kernels.ops import Array, Ops, Weight

from octavo_worker.architecture import from_huggingface
from octavo_worker.config import WorkerConfig
from octavo_worker.errors import ConfigError, ModelError
from octavo_worker.folder import read_json
from octavo_worker.manifest import Manifest, content_of, read_manifest, write_manifest
from octavo_worker.tensors import ALIGNMENT, TensorFile, write_tensors
from octavo_worker.weights import Layer, Weights

CONFIG, WEIGHTS = "config.json", "weights.safetensors"
MATRICES, NORMS = ("qkv", "output", "gate", "up", "down"), ("attention_norm", "feed_forward_norm")
"""Of a layer."""


class Engine:
    """An engine folder that is whole, by its manifest. Raises ModelError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        self.config = read_json(path / CONFIG)
        self.architecture = from_huggingface(self.config)

    def settle(self, config: WorkerConfig) -> WorkerConfig:
        """The configuration with what the folder was made for where it says nothing. Raises ConfigError."""
        made = self.manifest
        for flag, asked, found in (
            ("--weights", config.weights, made.weights),
            ("--kernels", config.kernels, made.kernels),
        ):
            if asked not in (None, "auto", found):
                raise ConfigError(
                    f"{self.path} was prepared for {flag} {found}, not {asked}; leave it out or prepare the model again"
                )
        dtype = made.dtype if config.dtype == "auto" else config.dtype
        return replace(config, weights=made.weights, kernels=made.kernels, dtype=dtype)

    def load(self, ops: Ops) -> Weights:
        """The weights. The file is read into memory that the kernels made: huge pages, where they have them, are read
        almost three times as fast as those of a mapped file. Raises ModelError."""
        if ops.weight_layout != self.manifest.weight_layout:
            raise ModelError(
                f"{self.path} has weights in the layout {self.manifest.weight_layout}, and the kernels read "
                f"{ops.weight_layout}; prepare the model again"
            )
        try:
            return EngineReader(self.path / WEIGHTS, ops).weights(self)
        except (KeyError, ValueError) as error:
            raise ModelError(f"{self.path / WEIGHTS} does not hold what {CONFIG} says: {error}") from error


class EngineReader:
    """Makes weights of a file's tensors. KeyError and ValueError say what is missing or does not fit."""

    def __init__(self, path: Path, ops: Ops) -> None:
        self.ops = ops
        self.file = TensorFile(path, self.room)

    def weights(self, engine: Engine) -> Weights:
        a = engine.architecture
        shapes = {
            "qkv": (a.q_width + 2 * a.kv_width, a.hidden),
            "output": (a.hidden, a.q_width),
            "gate": (a.intermediate, a.hidden),
            "up": (a.intermediate, a.hidden),
            "down": (a.hidden, a.intermediate),
        }

        def layer(prefix: str) -> Layer:
            norms = {name: self.norm(f"{prefix}.{name}", a.hidden) for name in NORMS}
            return Layer(**norms, **{name: self.matrix(f"{prefix}.{name}", shapes[name]) for name in MATRICES})

        embedding = self.matrix("embedding", (a.vocab, a.hidden))
        return Weights(
            architecture=a,
            embedding=embedding,
            layers=[layer(f"layers.{index}") for index in range(a.layers)],
            norm=self.norm("norm", a.hidden),
            head=self.matrix("head", (a.vocab, a.hidden)) if "head" in self.file.metadata else embedding,
            rope_frequencies=self.floats("rope_frequencies", a.head_dim // 2),
            digest=bytes.fromhex(engine.manifest.original),
        )

    def matrix(self, name: str, shape: tuple[int, int]) -> Weight:
        prefix = f"{name}."
        parts = {each.removeprefix(prefix): self.aligned(each) for each in self.file.places if each.startswith(prefix)}
        return self.ops.unpack(self.file.metadata[name], *shape, parts)

    def norm(self, name: str, width: int) -> Array:
        return self.ops.share(self.floats(name, width))

    def floats(self, name: str, width: int) -> np.ndarray:
        array = self.aligned(name)
        if array.shape != (width,) or array.dtype != np.float32:
            raise ValueError(f"{name} is {array.dtype} {list(array.shape)}, not float32 [{width}]")
        return array

    def aligned(self, name: str) -> np.ndarray:
        """A tensor where it was read, unless the kernels want it to begin elsewhere."""
        array = self.file.read(name)
        if array.ctypes.data % ALIGNMENT == 0:
            return array
        place = self.room(array.nbytes).view(array.dtype).reshape(array.shape)
        place[:] = array
        return place

    def room(self, num_bytes: int) -> np.ndarray:
        if self.ops.memory is not None:  # what lies in main memory is on its way to a device
            return np.empty(num_bytes, np.uint8)
        return np.asarray(self.ops.new_buffer((num_bytes,), "int8")).view(np.uint8)


def write_engine(folder: Path, weights: Weights, config: dict[str, object], ops: Ops, format: str, dtype: str) -> None:
    """Add all that a worker needs to `folder`; the manifest covers what lies there already, too."""
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    matrices = dict(matrices_of(weights))
    tensors = {f"{name}.{part}": array for name, each in matrices.items() for part, array in each.parts.items()}
    tensors |= {name: np.asarray(vector) for name, vector in vectors_of(weights)}
    write_tensors(folder / WEIGHTS, tensors, {name: each.format for name, each in matrices.items()})
    files = {path.name: content_of(path) for path in sorted(folder.iterdir())}
    write_manifest(folder, Manifest(ops.name, ops.weight_layout, format, dtype, weights.digest.hex(), files))


def matrices_of(weights: Weights) -> Iterator[tuple[str, Weight]]:
    """By name; a tied head once."""
    yield "embedding", weights.embedding
    for index, layer in enumerate(weights.layers):
        yield from ((f"layers.{index}.{name}", getattr(layer, name)) for name in MATRICES)
    if weights.head is not weights.embedding:
        yield "head", weights.head


def vectors_of(weights: Weights) -> Iterator[tuple[str, Array]]:
    """What is not multiplied by: norms and frequencies."""
    yield "norm", weights.norm
    yield "rope_frequencies", weights.rope_frequencies
    for index, layer in enumerate(weights.layers):
        yield from ((f"layers.{index}.{name}", getattr(layer, name)) for name in NORMS)
