"""Safetensors as numpy arrays, without another library for bfloat16, which is uint16 to numpy.

Files are written so that each tensor begins at a multiple of 64 bytes, as long as sizes allow: the kernels read them where
they lie.
"""

import json
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from octavo_worker.errors import ModelError

ALIGNMENT = 64
NUMPY = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "I8": "i1", "U8": "u1"}
FLOATS = ("F32", "F16", "BF16")
MAX_HEADER_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int  # bytes


class TensorFile:
    """An open safetensors file. Raises ModelError, naming the file, if it is not whole.

    It is mapped, or read into `room(bytes)`, uint8, where that is given.
    """

    def __init__(self, path: Path, room: Callable[[int], np.ndarray] | None = None) -> None:
        self.path = path
        try:
            check_header(path)
            with safe_open(path, framework="numpy"):  # compares the header with the file's size, overlaps and gaps too
                pass
            with path.open("rb") as file:
                self.data = (
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if room is None else read_into(room, file)
                )
        except (OSError, SafetensorError, ValueError) as error:
            raise ModelError(f"{path} is not a whole safetensors file: {error}") from error
        size = int.from_bytes(bytes(self.data[:8]), "little")
        header = json.loads(bytes(self.data[8 : 8 + size]))
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self.places = {
            name: Place(entry["dtype"], tuple(entry["shape"]), 8 + size + entry["data_offsets"][0])
            for name, entry in header.items()
        }

    def read(self, name: str) -> np.ndarray:
        """The tensor in its own dtype, bfloat16 as uint16. The array is private: changing it changes no file."""
        place = self.places[name]
        if place.dtype not in NUMPY:
            raise ModelError(f"tensor {name} of {self.path} is {place.dtype}; {', '.join(NUMPY)} can be read")
        dtype = np.dtype(NUMPY[place.dtype])
        count = int(np.prod(place.shape, dtype=np.int64))
        return np.frombuffer(self.data, dtype, count, place.offset).reshape(place.shape)

    def floats(self, name: str) -> np.ndarray:
        """The tensor in float32."""
        dtype = self.places[name].dtype
        if dtype not in FLOATS:
            raise ModelError(f"tensor {name} of {self.path} is {dtype}; weights are {', '.join(FLOATS)}")
        values = self.read(name)
        if dtype == "BF16":
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32, copy=False)


def check_header(path: Path) -> None:
    """Raises ValueError for a header that nobody should begin to parse: it is parsed whole."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEADER_BYTES:
        raise ValueError(f"its header has {size} bytes; {MAX_HEADER_BYTES} is the most")


def read_into(room: Callable[[int], np.ndarray], file: BinaryIO) -> np.ndarray:
    """All of a file. Raises OSError."""
    size = os.fstat(file.fileno()).st_size
    data = room(size)
    if file.readinto(data) != size:  # type: ignore[attr-defined]
        raise OSError("it shrank while it was read")
    return data


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """A safetensors file. Dtypes are those of NUMPY; uint16 stands for bfloat16."""
    codes = {np.dtype(dtype): code for code, dtype in NUMPY.items()}
    names = sorted(tensors, key=lambda name: tensors[name].nbytes % ALIGNMENT > 0)  # whole ones first
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        start, end = end, end + tensors[name].nbytes
        dtype, shape = codes[tensors[name].dtype], list(tensors[name].shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8).data)
