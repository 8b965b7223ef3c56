"""A scheduler of a few lines: one ROUTER that says what a test tells it to."""

import time
from collections.abc import Callable
from pathlib import Path

import zmq
from octavo.v1 import step_pb2 as wire

from tests.patience import PATIENCE


class Router:
    """Binds an ipc path; remembers who spoke last and answers them."""

    def __init__(self, path: Path) -> None:
        self.address = f"ipc://{path}"
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(self.address)
        self.peer = b""
        self.epoch = wire.Epoch(boot_id=77)

    def close(self) -> None:
        self.context.destroy(linger=0)

    def receive(self, kind: str) -> wire.WorkerMessage:
        """The next message of this kind; others are passed over."""
        return self.receive_when(lambda message: message.WhichOneof("body") == kind, kind)

    def receive_when(self, fits: Callable[[wire.WorkerMessage], bool], what: str) -> wire.WorkerMessage:
        deadline = time.monotonic() + PATIENCE
        while (left := deadline - time.monotonic()) > 0 and self.socket.poll(round(left * 1000)):
            self.peer, data = self.socket.recv_multipart()
            message = wire.WorkerMessage.FromString(data)
            if fits(message):
                return message
        raise AssertionError(f"no {what} came")

    def send(self, epoch: wire.Epoch | None = None, **body: object) -> None:
        message = wire.SchedulerMessage(epoch=epoch or self.epoch, **body)  # type: ignore[arg-type]
        self.socket.send_multipart([self.peer, message.SerializeToString()])

    def welcome(self, heartbeat_seconds: float = 0.05) -> wire.Hello:
        """Answer the next Hello with a fresh epoch; the Hello."""
        hello = self.receive("hello").hello
        self.epoch.counter += 1
        self.send(welcome=wire.Welcome(heartbeat_seconds=heartbeat_seconds))
        return hello
