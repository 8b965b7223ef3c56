"""Reading a Hugging Face folder: config.json and safetensors, whole or in shards."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from octavo_worker.errors import ModelError
from octavo_worker.tensors import TensorFile

INDEX = "model.safetensors.index.json"


class Folder:
    """An open model folder. Raises ModelError, naming the file, if anything in it does not fit."""

    def __init__(self, path: Path) -> None:
        self.config = read_json(path / "config.json")
        self.weight_files = find_weights(path)
        self.shard_of = {name: shard for shard in map(TensorFile, self.weight_files) for name in shard.places}

    def read(self, name: str) -> np.ndarray:
        """The tensor in float32."""
        return self.shard_of[name].floats(name)


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} does not hold an object")
    return content


def find_weights(path: Path) -> list[Path]:
    """The safetensors files of the folder, in order of name."""
    if (path / INDEX).exists():
        mapping = read_json(path / INDEX).get("weight_map")
        if not isinstance(mapping, dict) or not mapping:
            raise ModelError(f"{path / INDEX} has no weight_map")
        names = sorted({str(name) for name in mapping.values()})
        if any("/" in name or not (path / name).is_file() for name in names):
            raise ModelError(f"{path / INDEX} names files that are not in the folder; copy all of {', '.join(names)}")
        return [path / name for name in names]
    files = sorted(path.glob("*.safetensors"))
    if not files and any([*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.pth")]):
        raise ModelError(f"{path} holds only pickled weights, which are never read; convert them to safetensors")
    if not files:
        raise ModelError(f"{path} holds no *.safetensors file")
    return files
