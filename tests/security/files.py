"""Model files made byte by byte, so that they can claim anything."""

import json
import struct
from collections.abc import Mapping, Sequence

STRING, ARRAY, UINT8, UINT32, FLOAT64, BOOL = 8, 9, 0, 4, 12, 7
F32 = 0


def text(content: str | bytes, size: int | None = None) -> bytes:
    """A GGUF text; `size` is what it claims."""
    data = content.encode() if isinstance(content, str) else content
    return struct.pack("<Q", len(data) if size is None else size) + data


def entry(key: str | bytes, kind: int, value: bytes) -> bytes:
    """A metadata entry."""
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, values: bytes, count: int) -> bytes:
    return struct.pack("<IQ", kind, count) + values


def tensor(
    name: str | bytes, shape: Sequence[int], offset: int = 0, kind: int = F32, dimensions: int | None = None
) -> bytes:
    """What a GGUF header says of a tensor."""
    count = len(shape) if dimensions is None else dimensions
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", count, *shape, kind, offset)


def gguf(
    values: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    num_values: int | None = None,
    num_tensors: int | None = None,
    version: int = 3,
    data: int = 256,
) -> bytes:
    """A file with this header and so many bytes of data; counts are true unless they are given."""
    counts = (
        len(tensors) if num_tensors is None else num_tensors,
        len(values) if num_values is None else num_values,
    )
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join([*values, *tensors])
    return head + bytes(-len(head) % 32 + data)


def safetensors(header: Mapping[str, object] | bytes, *, size: int | None = None, data: int = 64) -> bytes:
    """A file with this header, whose size it states truly unless one is given, and so many bytes of data."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(content) if size is None else size) + content + bytes(data)


def place(dtype: object = "F32", shape: object = (4, 4), start: object = 0, end: object = 64) -> dict[str, object]:
    """What a safetensors header says of a tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
