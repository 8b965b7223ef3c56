"""Messages between the scheduler and its helper processes: two lengths, a head in JSON, a body of bytes."""

import json
import socket
import struct
import time
from typing import Any

LENGTHS = struct.Struct("<II")
AT_ONCE = 1 << 20
"""Bytes of a message that are written and read in one piece: with each piece the interpreter is given up, and other threads
of the scheduler have to give it back."""


class Line:
    """One end of a connected pair of sockets, which is closed with it."""

    def __init__(self, end: socket.socket) -> None:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, AT_ONCE)
        self._end = end
        self._read = bytearray()

    def send(self, head: object, body: bytes = b"", seconds: float | None = None) -> None:
        """Raises TimeoutError when it takes longer than that."""
        words = json.dumps(head, separators=(",", ":")).encode()
        self._end.settimeout(seconds)
        self._end.sendall(b"".join((LENGTHS.pack(len(words), len(body)), words, body)))

    def receive(self, seconds: float | None = None) -> tuple[Any, bytes]:
        """Head and body. Raises EOFError where the line is closed, and TimeoutError when it takes longer than that."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self._read_until(LENGTHS.size, deadline)
        num_words, num_bytes = LENGTHS.unpack_from(self._read)
        body_at = LENGTHS.size + num_words
        self._read_until(body_at + num_bytes, deadline)
        words, body = self._read[LENGTHS.size : body_at], bytes(memoryview(self._read)[body_at : body_at + num_bytes])
        del self._read[: body_at + num_bytes]
        return json.loads(words), body

    def close(self) -> None:
        """The other end reads what was sent, and then EOFError."""
        self._end.close()

    def shutdown(self) -> None:
        """Whoever waits at either end gets EOFError. Raises OSError where it is closed."""
        self._end.shutdown(socket.SHUT_RDWR)

    def _read_until(self, count: int, deadline: float | None) -> None:
        while len(self._read) < count:
            self._end.settimeout(None if deadline is None else max(deadline - time.monotonic(), 1e-3))
            part = self._end.recv(AT_ONCE)
            if not part:
                raise EOFError("the line is closed")
            self._read += part
