"""Ten pickles that touch a file when they are loaded, in the words of pickle's own machine, and where to put them.

They are written by hand: nothing in this repository makes or reads a pickle.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.patience import PATIENCE


def _text(value: str) -> bytes:
    """A string onto the stack, as protocol 4 has it."""
    return b"\x8c" + bytes([len(value)]) + value.encode()


def gadgets(marker: Path) -> dict[str, bytes]:
    """By name. Each touches `marker`, whose path must be short and plain."""
    shell, code, path = f"touch {marker}", f"open({str(marker)!r}, 'w')", str(marker)
    assert len(code) < 200
    quoted = code.replace("'", '"')
    return {
        "a function by name": b"cposix\nsystem\n(S'%b'\ntR." % shell.encode(),
        "protocol 2": b"\x80\x02cposix\nsystem\nX%b%b\x85R." % (len(shell).to_bytes(4, "little"), shell.encode()),
        "a name from the stack": b"\x80\x04" + _text("posix") + _text("system") + b"\x93" + _text(shell) + b"\x85R.",
        "an instance": b"(S'%b'\niposix\nsystem\n." % shell.encode(),
        "an object": b"(cposix\nsystem\nS'%b'\no." % shell.encode(),
        "exec": b"cbuiltins\nexec\n(S'%b'\ntR." % quoted.encode(),
        "eval": b"cbuiltins\neval\n(S'%b'\ntR." % quoted.encode(),
        "another process": b"csubprocess\ncall\n((S'touch'\nS'%b'\nltR." % path.encode(),
        "an import": b"cbuiltins\ngetattr\n(cbuiltins\n__import__\n(S'os'\ntRS'system'\ntR(S'%b'\ntR." % shell.encode(),
        "a method": b"\x80\x04"
        + (_text("pathlib") + _text("Path.touch") + b"\x93")
        + (_text("pathlib") + _text("Path") + b"\x93" + _text(path) + b"\x85R\x85R."),
    }


LOADER = """
import pickle, sys
from octavo.audit import refuse_unpickling
if sys.argv[1] == "refused":
    refuse_unpickling()
try:
    getattr(pickle, sys.argv[2])(sys.stdin.buffer.read())
except RuntimeError as error:
    print(error)
"""


def load(gadget: bytes, *, refused: bool, how: str = "loads") -> str:
    """Loads a pickle in another process, with the hook against it or without; what that process prints."""
    words = [sys.executable, "-c", LOADER, "refused" if refused else "allowed", how]
    return subprocess.run(words, input=gadget, capture_output=True, check=True, timeout=PATIENCE).stdout.decode()


def as_text(gadget: bytes) -> str:
    """The same in a field that holds text."""
    return gadget.decode("latin-1")


def messages_with(kind: Descriptor, gadget: bytes, depth: int = 4) -> Iterator[Message]:
    """For each field of text or bytes, here or deeper: a message that has the gadget there and nothing else."""
    for field in kind.fields:
        for value in _values(field, gadget, depth):
            message = GetMessageClass(kind)()
            _put(message, field, value)
            yield message


def _values(field: FieldDescriptor, gadget: bytes, depth: int) -> Iterator[Any]:
    if field.type == FieldDescriptor.TYPE_STRING:
        yield as_text(gadget)
    elif field.type == FieldDescriptor.TYPE_BYTES:
        yield gadget
    elif field.message_type is not None and depth and not field.message_type.GetOptions().map_entry:
        yield from messages_with(field.message_type, gadget, depth - 1)


def _put(message: Message, field: FieldDescriptor, value: Any) -> None:
    if field.is_repeated:
        getattr(message, field.name).extend([value])
    elif isinstance(value, Message):
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)
