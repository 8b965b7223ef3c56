"""Reading GGUF: header, metadata and the place of each tensor, with every size checked before anything is mapped.

The `gguf` package knows the quantised formats and undoes them; its reader takes two seconds to list a vocabulary,
which a worker does not need, and trusts the sizes it finds.
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from octavo_kernels.ops import BLOCK_BYTES, Blocks

from octavo_worker.errors import ModelError

MAGIC = b"GGUF"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in the file. `shape` has the slowest dimension first, as in torch."""

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    num_bytes: int


class Cursor:
    """Reads little-endian values one after the other; never past the end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def skip(self, num_bytes: int) -> int:
        """Go forward; the old place."""
        start = self.at
        if num_bytes > len(self.data) - start:
            raise ModelError("the file ends too early")
        self.at += num_bytes
        return start

    def scalar(self, code: str) -> Any:
        layout = struct.Struct("<" + code)
        return layout.unpack_from(self.data, self.skip(layout.size))[0]

    def string(self) -> bytes:
        size = self.scalar("Q")
        start = self.skip(size)
        return self.data[start : start + size]

    def value(self, kind: int) -> Any:
        """A metadata value. Arrays (vocabularies) are passed over; their length stands for them."""
        if kind == STRING:
            return self.string().decode("utf-8", "replace")
        if kind != ARRAY:
            return self.scalar(code_of(kind))
        element, count = self.scalar("I"), self.scalar("Q")
        if element == STRING:
            for _ in range(count):
                self.skip(self.scalar("Q"))
        else:
            self.skip(struct.calcsize("<" + code_of(element)) * count)
        return count


def code_of(kind: int) -> str:
    if kind not in SCALARS:
        raise ModelError(f"metadata of unknown type {kind}")
    return SCALARS[kind]


class GgufFile:
    """An open GGUF file. Raises ModelError, naming the file, if anything in it does not fit."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.metadata, self.places = read_header(Cursor(self.data))
        except (OSError, ValueError, struct.error, ModelError) as error:
            raise ModelError(f"{path} is not a whole GGUF file: {error}") from error

    def read(self, name: str) -> np.ndarray | Blocks:
        """The tensor as it lies in the file, if it is a matrix of blocks that kernels know; else in float32."""
        place = self.places[name]
        raw = np.frombuffer(self.data, np.uint8, place.num_bytes, place.offset)
        rows = raw.reshape(*place.shape[:-1], place.num_bytes // math.prod(place.shape[:-1]))
        if place.kind.name in BLOCK_BYTES and len(place.shape) == 2:
            return Blocks(place.kind.name, rows)
        return np.asarray(dequantize(rows, place.kind).reshape(place.shape), np.float32)


def read_header(cursor: Cursor) -> tuple[dict[str, Any], dict[str, Place]]:
    start = cursor.skip(4)
    if cursor.data[start : start + 4] != MAGIC:
        raise ModelError("it does not begin with 'GGUF'")
    version, num_tensors, num_values = cursor.scalar("I"), cursor.scalar("Q"), cursor.scalar("Q")
    if version not in (2, 3):
        raise ModelError(f"version {version} is not supported; 2 and 3 are")
    metadata = {}
    for _ in range(num_values):
        key = cursor.string().decode("utf-8", "replace")
        metadata[key] = cursor.value(cursor.scalar("I"))
    entries = [read_entry(cursor) for _ in range(num_tensors)]
    alignment = int(metadata.get("general.alignment", 32))
    if alignment < 1:
        raise ModelError(f"alignment {alignment}")
    base = -(-cursor.at // alignment) * alignment
    return metadata, {entry.name: place_of(entry, base, len(cursor.data)) for entry in entries}


class Entry(NamedTuple):
    """What the header says of a tensor; `offset` counts from the end of the header."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def read_entry(cursor: Cursor) -> Entry:
    name, dimensions = cursor.string().decode("utf-8", "replace"), cursor.scalar("I")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise ModelError(f"tensor {name} has {dimensions} dimensions")
    shape = tuple(cursor.scalar("Q") for _ in range(dimensions))[::-1]
    return Entry(name, shape, cursor.scalar("I"), cursor.scalar("Q"))


def place_of(entry: Entry, base: int, file_bytes: int) -> Place:
    name, shape, kind, offset = entry
    try:
        quantisation = GGMLQuantizationType(kind)
    except ValueError:
        raise ModelError(f"tensor {name} has unknown type {kind}") from None
    elements, block_bytes = GGML_QUANT_SIZES[quantisation]
    if min(shape) < 1 or shape[-1] % elements:
        raise ModelError(f"tensor {name} has shape {shape}")
    num_bytes = math.prod(shape) // elements * block_bytes
    if base + offset + num_bytes > file_bytes:
        raise ModelError(f"it ends before the end of tensor {name}")
    return Place(shape, quantisation, base + offset, num_bytes)
