"""The header of a GGUF file: metadata and a list of tensors, with every size checked before it is used.

Scheduler and worker read it with the same code, so that none of them takes for whole what another refuses. Nothing is
allocated because a count in the file says so: counts have bounds, and what they count must lie in the file.
"""

import mmap
import struct
from dataclasses import dataclass
from typing import Any

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9

MAX_VALUES = 1 << 16
MAX_TENSORS = 1 << 17
MAX_DIMENSIONS = 4
MAX_NAME_BYTES = (1 << 16) - 1
MAX_STRING_BYTES = 16 << 20
MAX_ELEMENTS = 1 << 22
"""Of one array: many times the largest vocabularies."""
MAX_ALIGNMENT = 1 << 20


class BadHeader(Exception):
    """The file does not begin with a whole GGUF header. Says why, and not which file."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """What the header says of a tensor, nothing of it compared with the file yet but that it has dimensions.

    `shape` has the slowest dimension first; `offset` counts from the end of the header.
    """

    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """`start` is where tensors begin, in bytes from the beginning of the file."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]
    alignment: int
    start: int


def read_header(data: bytes | mmap.mmap, *, with_arrays: bool) -> Header:
    """`data` is the whole file. Without `with_arrays` an array (a vocabulary) is passed over and stands as None.

    Raises BadHeader.
    """
    with memoryview(data) as view:
        cursor = Cursor(view)
        if bytes(view[cursor.skip(4) : 4]) != MAGIC:
            raise BadHeader("it does not begin with 'GGUF'")
        version, num_tensors, num_values = cursor.scalar("I"), cursor.scalar("Q"), cursor.scalar("Q")
        if version not in VERSIONS:
            raise BadHeader(f"version {version} is not supported; {' and '.join(map(str, VERSIONS))} are")
        _check_count("metadata values", num_values, MAX_VALUES)
        _check_count("tensors", num_tensors, MAX_TENSORS)
        metadata = cursor.metadata(num_values, with_arrays)
        tensors = cursor.tensors(num_tensors)
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise BadHeader("its alignment is no power of two")
        return Header(metadata, tensors, alignment, -(-cursor.at // alignment) * alignment)


def _check_count(what: str, count: int, most: int) -> None:
    if count > most:
        raise BadHeader(f"it claims to have {count} {what}; {most} is the most")


class Cursor:
    """Reads little-endian values one after the other; never past the end."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.at = 0

    def skip(self, num_bytes: int) -> int:
        """Goes forward; the old place."""
        start = self.at
        if num_bytes > len(self.view) - start:
            raise BadHeader("the file ends too early")
        self.at += num_bytes
        return start

    def scalar(self, code: str) -> Any:
        return self.scalars(code, 1)[0]

    def scalars(self, code: str, count: int) -> tuple[Any, ...]:
        layout = f"<{count}{code}"
        return struct.unpack_from(layout, self.view, self.skip(struct.calcsize(layout)))

    def string(self, most: int = MAX_STRING_BYTES) -> str:
        size = self.scalar("Q")
        _check_count("bytes of text in one place", size, most)
        start = self.skip(size)
        try:
            return str(self.view[start : self.at], "utf-8")
        except UnicodeDecodeError:
            raise BadHeader("a text in it is not UTF-8") from None

    def metadata(self, count: int, with_arrays: bool) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for _ in range(count):
            key = self.string(MAX_NAME_BYTES)
            if key in values:
                raise BadHeader(f"it has {_shown(key)} twice")
            values[key] = self.value(self.scalar("I"), with_arrays)
        return values

    def value(self, kind: int, with_arrays: bool) -> Any:
        if kind == ARRAY:
            return self.array(with_arrays)
        return self.string() if kind == STRING else self.scalar(_code(kind))

    def array(self, is_wanted: bool) -> list[Any] | None:
        """Its elements are scalars or texts; arrays of arrays are in no file that is served here."""
        kind, count = self.scalar("I"), self.scalar("Q")
        _check_count("elements in one array", count, MAX_ELEMENTS)
        if kind == STRING:
            texts = [self.string() if is_wanted else self.skip(self.scalar("Q")) for _ in range(count)]
            return texts if is_wanted else None
        code = _code(kind)
        if is_wanted:
            return list(self.scalars(code, count))
        self.skip(struct.calcsize("<" + code) * count)
        return None

    def tensors(self, count: int) -> dict[str, TensorEntry]:
        entries: dict[str, TensorEntry] = {}
        for _ in range(count):
            name, dimensions = self.string(MAX_NAME_BYTES), self.scalar("I")
            if name in entries:
                raise BadHeader(f"it has tensor {_shown(name)} twice")
            if not 1 <= dimensions <= MAX_DIMENSIONS:
                raise BadHeader(f"tensor {_shown(name)} has {dimensions} dimensions")
            shape = self.scalars("Q", dimensions)[::-1]
            entries[name] = TensorEntry(shape, self.scalar("I"), self.scalar("Q"))
        return entries


def _code(kind: int) -> str:
    if kind not in SCALARS:
        raise BadHeader(f"it has a value of unknown type {kind}")
    return SCALARS[kind]


def _shown(name: str) -> str:
    """A name of the file's own choice, in a sentence for a person."""
    return ascii(name[:64])
