"""The ZeroMQ end of a front process: one DEALER socket in its event loop, without a thread."""

import asyncio
from collections.abc import Callable

import zmq

from octavo_scheduler.limits import ZMQ_MESSAGE_BYTES

MOST_MESSAGES = 64
"""Taken at once; then others in the event loop have their turn."""
LINGER_MS = 500
"""For last words."""


class FrontLink:
    """Dials `address`; `receive` gets each frame that comes."""

    def __init__(self, address: str, receive: Callable[[bytes], object]) -> None:
        self._receive = receive
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, ZMQ_MESSAGE_BYTES)
        for side in (zmq.SNDHWM, zmq.RCVHWM):  # what the scheduler says must not get lost, so it is always taken
            self._socket.setsockopt(side, 0)
        self._socket.connect(address)
        self._event_loop = asyncio.get_running_loop()
        self._event_loop.add_reader(self._socket.FD, self._read)

    def send(self, frame: bytes) -> None:
        """Never blocks."""
        self._socket.send(frame, zmq.NOBLOCK)
        # The descriptor tells once that something has come, to whoever uses the socket next: that was this call, perhaps.
        if self._socket.poll(0, zmq.POLLIN):
            self._event_loop.call_soon(self._read)

    def _read(self) -> None:
        for _ in range(MOST_MESSAGES):
            if self._socket.closed:
                return
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._receive(frame)
        self._event_loop.call_soon(self._read)

    def close(self) -> None:
        self._event_loop.remove_reader(self._socket.FD)
        self._socket.close()
        self._context.term()
