"""Changing bytes and messages at random, rather as one who means harm than as noise would."""

import random
import struct
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

INTEGERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    127,
    128,
    255,
    256,
    32767,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, 1e308, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "\0", "a" * 300, "\ud7ff", "é" * 200, "../../x", "%s%n{0}", "<|im_start|>", "\x1b[2J\n")
UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
BITS = {
    FieldDescriptor.CPPTYPE_INT32: 32,
    FieldDescriptor.CPPTYPE_UINT32: 32,
    FieldDescriptor.CPPTYPE_INT64: 64,
    FieldDescriptor.CPPTYPE_UINT64: 64,
}


def mutated(draw: random.Random, data: bytes, others: Sequence[bytes], most: int | None = None) -> bytes:
    """The bytes with one to four changes, all among the first `most`; some have whole parts from the others."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        end = min(len(changed), most or len(changed))
        at = draw.randrange(end + 1) if end else 0
        size = min(draw.choice((1, 1, 2, 4, 8, 16, 64)), len(changed) - at)
        match draw.randrange(8):
            case 0 if size:
                changed[at] ^= 1 << draw.randrange(8)
            case 1 if size:
                changed[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
            case 2:
                del changed[at : at + size]
            case 3:
                changed[at:at] = draw.randbytes(size)
            case 4:
                changed[at:at] = changed[at : at + size]
            case 5:
                integer = struct.pack("<Q", draw.choice(INTEGERS))[: draw.choice((1, 2, 4, 8))]
                changed[at : at + len(integer)] = integer
            case 6 if others:
                other = draw.choice(others)
                start = draw.randrange(len(other) + 1)
                changed[at : at + size] = other[start : start + size]
            case 7 if draw.randrange(4) == 0:
                del changed[at:]
    return bytes(changed)


def mutate_message(draw: random.Random, message: Message) -> None:
    """Changes some field, here or deeper, to a value of its type that somebody may have forgotten."""
    present = [(field, value) for field, value in message.ListFields() if field.message_type is not None]
    if present and draw.randrange(3):
        field, value = draw.choice(present)
        if not field.is_repeated:
            return mutate_message(draw, value)
        if len(value) and draw.randrange(3):
            return mutate_message(draw, draw.choice(list(value)))
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    if not fields:
        return None
    field = draw.choice(fields)
    if draw.randrange(8) == 0:
        message.ClearField(field.name)
    elif field.is_repeated:
        _repeat(draw, message, field)
    elif field.message_type is not None:
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, _value(draw, field, getattr(message, field.name)))
    return None


def _repeat(draw: random.Random, message: Message, field: FieldDescriptor) -> None:
    values = getattr(message, field.name)
    for _ in range(draw.choice((1, 2, 20))):
        if field.message_type is None:
            values.append(_value(draw, field, 0))
        elif len(values):
            values.add().CopyFrom(draw.choice(list(values)))
        else:
            values.add()


def _value(draw: random.Random, field: FieldDescriptor, now: Any) -> Any:
    kind = field.cpp_type
    if kind in BITS:
        value: int = draw.choice((*INTEGERS, draw.getrandbits(16), int(now) + draw.choice((-1, 1)))) % (1 << BITS[kind])
        return value if kind in UNSIGNED else value - ((value >> (BITS[kind] - 1)) << BITS[kind])
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return draw.choice((0, 1, 2, 99, 2**31 - 1, -1))
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return not now
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return draw.choice(TEXTS) if field.type == FieldDescriptor.TYPE_STRING else _column(draw, now or b"")
    return draw.choice((*FLOATS, draw.uniform(-3, 3)))


def _column(draw: random.Random, data: bytes) -> bytes:
    """Packed numbers, of which some are others now, or more, or fewer."""
    width = draw.choice((2, 4, 4, 8))
    items = [data[at : at + width] for at in range(0, len(data), width)]
    number = struct.pack("<q", draw.choice((-1, *range(24), 63, 64, 319, 320, 65535, 2**31 - 1, -(2**31))))[:width]
    match draw.randrange(5):
        case 0 if items:
            items.pop(draw.randrange(len(items)))
        case 1 if items:
            items.append(draw.choice(items))
        case 2:
            items.append(number)
        case 3:
            return data + draw.randbytes(draw.randrange(1, 9))
        case _ if items:
            items[draw.randrange(len(items))] = number
    return b"".join(items)
