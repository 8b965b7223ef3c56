"""Reading GGUF: the place of each tensor, with every size checked before anything is mapped.

The `gguf` package knows the quantised formats and undoes them; its reader trusts the sizes that it finds.
"""

import math
import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from octavo.gguf_header import BadHeader, Header, TensorEntry, read_header
from octavo_kernels.ops import BLOCK_BYTES, Blocks

from octavo_worker.errors import ModelError


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in the file. `shape` has the slowest dimension first, as in torch."""

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    num_bytes: int


class GgufFile:
    """An open GGUF file. Raises ModelError, naming the file, if anything in it does not fit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            header = read_header(self.data, with_arrays=False)
            self.places = places_of(header, len(self.data))
        except (OSError, ValueError, BadHeader, ModelError) as error:
            raise ModelError(f"{path} is not a whole GGUF file: {error}") from error
        self.metadata = header.metadata

    def read(self, name: str) -> np.ndarray | Blocks:
        """The tensor as it lies in the file, if it is a matrix of blocks that kernels know; else in float32."""
        place = self.places[name]
        raw = np.frombuffer(self.data, np.uint8, place.num_bytes, place.offset)
        rows = raw.reshape(*place.shape[:-1], place.num_bytes // math.prod(place.shape[:-1]))
        if place.kind.name in BLOCK_BYTES and len(place.shape) == 2:
            return Blocks(place.kind.name, rows)
        try:
            return np.asarray(dequantize(rows, place.kind).reshape(place.shape), np.float32)
        except NotImplementedError as error:
            raise ModelError(f"tensor {name!a} of {self.path} is {place.kind.name}, which cannot be read") from error


def places_of(header: Header, file_bytes: int) -> dict[str, Place]:
    """Raises ModelError unless all tensors lie in the file, each in a part of its own."""
    places = {name: place_of(name, entry, header, file_bytes) for name, entry in header.tensors.items()}
    end = header.start
    for name, place in sorted(places.items(), key=lambda item: item[1].offset):
        if place.offset < end:
            raise ModelError(f"tensor {name!a} overlaps another")
        end = place.offset + place.num_bytes
    return places


def place_of(name: str, entry: TensorEntry, header: Header, file_bytes: int) -> Place:
    try:
        kind = GGMLQuantizationType(entry.kind)
    except ValueError:
        raise ModelError(f"tensor {name!a} has unknown type {entry.kind}") from None
    elements, block_bytes = GGML_QUANT_SIZES[kind]
    if min(entry.shape) < 1 or entry.shape[-1] % elements:
        raise ModelError(f"tensor {name!a} has shape {entry.shape}")
    num_bytes = math.prod(entry.shape) // elements * block_bytes
    if entry.offset % header.alignment:
        raise ModelError(f"tensor {name!a} does not begin at a multiple of {header.alignment} bytes")
    if header.start + entry.offset + num_bytes > file_bytes:
        raise ModelError(f"it ends before the end of tensor {name!a}")
    return Place(entry.shape, kind, header.start + entry.offset, num_bytes)
