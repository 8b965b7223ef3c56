"""Clients that ask for streams and never read them: HTTP/2 with a window of zero bytes, of which no gRPC library is capable.

A gRPC server may then send headers, and not a single byte of a message.
"""

import asyncio
import struct
from typing import Any

DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 4, 6, 7, 8
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header in HPACK, neither compressed nor remembered."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))


class DeafClient:
    """One connection over a unix socket. `heard` has the frames that came, kind and content, by stream."""

    def __init__(self, path: str) -> None:
        self.heard: dict[int, list[tuple[int, bytes]]] = {}
        self._path = path
        self._streams = 0

    async def __aenter__(self) -> "DeafClient":
        reader, self._writer = await asyncio.open_unix_connection(self._path)
        self._writer.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)))
        self._listening = asyncio.create_task(self._listen(reader))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.cancel()
        self._writer.close()

    def ask(self, method: str, message: Any) -> int:
        """Sends a request; returns the number of its stream."""
        stream = 2 * self._streams + 1
        self._streams += 1
        headers = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "x", "te": "trailers"}
        headers["content-type"] = "application/grpc"
        body = message.SerializeToString()
        block = b"".join(literal(name, value) for name, value in headers.items())
        self._writer.write(frame(HEADERS, END_HEADERS, stream, block))
        self._writer.write(frame(DATA, END_STREAM, stream, struct.pack(">BI", 0, len(body)) + body))
        return stream

    def ping(self) -> None:
        self._writer.write(frame(PING, 0, 0, bytes(8)))

    def listen(self, stream: int) -> None:
        """From now on there is room for messages."""
        for place in (0, stream):
            self._writer.write(frame(WINDOW_UPDATE, 0, place, struct.pack(">I", 1 << 20)))

    def messages(self, stream: int) -> list[bytes]:
        """The gRPC messages that came."""
        data = b"".join(content for kind, content in self.heard[stream] if kind == DATA)
        found = []
        while data:
            length = int.from_bytes(data[1:5], "big")
            found.append(data[5 : 5 + length])
            data = data[5 + length :]
        return found

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while True:
            head = await reader.readexactly(9)
            content = await reader.readexactly(int.from_bytes(head[:3], "big"))
            self.heard.setdefault(int.from_bytes(head[5:], "big"), []).append((head[3], content))
