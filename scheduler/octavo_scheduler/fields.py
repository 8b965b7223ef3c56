"""Frozen records to plain JSON values and back, led by their own type hints.

A field that has its default is left out, so that a record may gain fields without making older logs unreadable. Tuples of
integers travel packed: base64 of little-endian int32.
"""

import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_SWAP = sys.byteorder == "big"


class UnknownField(Exception):
    """The values name a field that the record does not have: somebody newer wrote them."""


def to_plain(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults, as values that JSON knows."""
    kind: Any = type(record)
    kinds = _kinds(kind)
    values = ((field, getattr(record, field.name)) for field in _fields(kind))
    return {field.name: _plain(kinds[field.name], value) for field, value in values if not _is_default(field, value)}


def from_plain(record: type[T], values: Mapping[str, Any]) -> T:
    """The record that `to_plain` was given. Raises UnknownField; TypeError or ValueError for values that make no record."""
    kind: Any = record
    kinds = _kinds(kind)
    if not isinstance(values, Mapping):
        raise TypeError(f"{kind.__name__} stands as its fields, not as a {type(values).__name__}")
    unknown = values.keys() - kinds.keys()
    if unknown:
        raise UnknownField(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    return record(**{name: _revived(kinds[name], value) for name, value in values.items()})


@cache
def _kinds(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in _fields(kind)}


@cache
def _fields(kind: Any) -> "tuple[Field[Any], ...]":
    return fields(kind)


def _is_default(field: "Field[Any]", value: object) -> bool:
    if field.default_factory is not MISSING:
        return bool(value == field.default_factory())
    return field.default is not MISSING and bool(value == field.default)


def _plain(kind: Any, value: Any) -> Any:
    if is_dataclass(value):
        return to_plain(value)
    match value:
        case Enum():
            return value.name
        case bytes():
            return value.hex()
        case tuple() if kind == tuple[int, ...]:
            return packed(value)
        case tuple():
            inner = get_args(kind)
            return [_plain(inner[0] if inner[1:] == (...,) else None, item) for item in value]
        case frozenset():
            return sorted(value)
        case Mapping():
            return {key: _plain(None, item) for key, item in value.items()}
    return value


def _revived(kind: Any, value: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else _revived(next(k for k in inner if k is not NoneType), value)
    if kind == tuple[int, ...]:
        return unpacked(value)
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[1:] == (...,) else inner
        return tuple(_revived(k, item) for k, item in zip(kinds, value, strict=True))
    if origin is frozenset:
        return frozenset(_revived(inner[0], item) for item in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _revived(inner[1], item) for key, item in value.items()}
    if is_dataclass(kind):
        return from_plain(kind, value)  # type: ignore[arg-type]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[value]
    return bytes.fromhex(value) if kind is bytes else value


def packed(numbers: "tuple[int, ...]") -> str:
    """Integers as base64 of little-endian int32; raises OverflowError for one that does not fit."""
    column = array("i", numbers)
    if _SWAP:
        column.byteswap()
    return b64encode(column.tobytes()).decode()


def unpacked(text: str) -> tuple[int, ...]:
    """What `packed` was given; raises ValueError for a text that it did not make."""
    column = array("i")
    column.frombytes(b64decode(text, validate=True))
    if _SWAP:
        column.byteswap()
    return tuple(column)
