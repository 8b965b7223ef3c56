"""Messages between the scheduler and its helper processes: two lengths, a head in JSON, a body of bytes."""

import json
import socket
import struct
import time
from typing import Any

LENGTHS = struct.Struct("<II")


def send(line: socket.socket, head: object, body: bytes = b"") -> None:
    words = json.dumps(head, separators=(",", ":")).encode()
    line.sendall(b"".join((LENGTHS.pack(len(words), len(body)), words, body)))


def receive(line: socket.socket, seconds: float | None = None) -> tuple[Any, bytes]:
    """Head and body. Raises EOFError where the line is closed, and TimeoutError when it takes longer than that."""
    deadline = None if seconds is None else time.monotonic() + seconds
    num_words, num_bytes = LENGTHS.unpack(_read(line, LENGTHS.size, deadline))
    return json.loads(_read(line, num_words, deadline)), _read(line, num_bytes, deadline)


def _read(line: socket.socket, count: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while count:
        if deadline is not None:
            line.settimeout(max(deadline - time.monotonic(), 1e-3))
        part = line.recv(min(count, 1 << 20))
        if not part:
            raise EOFError("the line is closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
