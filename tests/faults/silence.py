"""Workers that live and say nothing: stopped by the system, or behind a network that swallows everything."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from octavo_client import AsyncClient

from tests.faults.cluster import Cluster, cluster
from tests.faults.streams import Load, Tally, some_requests
from tests.patience import until

STREAMS = 12
WARM_SECONDS = 1.0
"""After which the time of a worker's steps is known."""


class Proxy:
    """A TCP connection in between, which swallows what goes through it once it `is_dark`, and keeps the line open."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.is_dark = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lines: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return
            self.lines.append(here)
            try:
                there = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # nobody is there any more
                here.close()
                continue
            self.lines.append(there)
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self.is_dark:
                    sink.sendall(data)
        except OSError:
            pass

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # which wakes whoever accepts
        self._accepting.join()
        self.listener.close()
        for line in self.lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()


async def busy(load: Load, made: Cluster, name: str) -> None:
    """Until a worker has rows in flight, and its steps are known."""
    async with AsyncClient(load.address) as client:

        async def is_busy() -> bool:
            workers = (await client.status()).workers
            return any(each.worker_id == name and each.running for each in workers) and load.tally.ended > STREAMS

        await until(is_busy, f"{name} has nothing to do")
        await asyncio.sleep(WARM_SECONDS)


Round = Callable[[Cluster, Load], Awaitable[float | None]]
"""Silences a worker of its own; the seconds until it was given up."""


async def under_load(made: Cluster, silence: Round, rounds: int) -> tuple[list[float], Tally]:
    """What `rounds` of it gave, and what became of the streams of two other workers."""
    for _ in range(2):
        await asyncio.to_thread(made.start_worker)
    load = Load(made.address, STREAMS, some_requests(18))
    await load.learn()
    streams = asyncio.create_task(load.run())
    seconds = [await silence(made, load) for _ in range(rounds)]
    load.is_stopped.set()
    await streams
    return [each for each in seconds if each is not None], load.tally


async def frozen(made: Cluster, load: Load) -> float | None:
    """A worker is stopped by SIGSTOP; when it is given up it goes on."""
    name = await asyncio.to_thread(made.start_worker)
    await busy(load, made, name)
    process, at = made.workers[name], time.monotonic()
    os.kill(process.pid, signal.SIGSTOP)
    seen = await asyncio.to_thread(made.gone, name, at)
    os.kill(process.pid, signal.SIGCONT)
    os.kill(process.pid, signal.SIGTERM)
    return None if seen is None else seen[0]


async def in_the_dark(made: Cluster, load: Load) -> float | None:
    """The network of a worker swallows everything."""
    proxy = Proxy(int(made.steps.rpartition(":")[2]))
    name = await asyncio.to_thread(made.start_worker, steps=f"tcp://127.0.0.1:{proxy.port}")
    await busy(load, made, name)
    at, proxy.is_dark = time.monotonic(), True
    seen = await asyncio.to_thread(made.gone, name, at)
    made.workers[name].kill()
    proxy.close()
    return None if seen is None else seen[0]


def free_port() -> int:
    """Of this machine; nobody else had better take it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def freeze(kind: str, model: Path, folder: Path, rounds: int) -> tuple[list[float], Tally]:
    with cluster(model, folder, kind) as made:
        return asyncio.run(under_load(made, frozen, rounds))


def darken(kind: str, model: Path, folder: Path, rounds: int) -> tuple[list[float], Tally]:
    with cluster(model, folder, kind, steps=f"tcp://127.0.0.1:{free_port()}") as made:
        return asyncio.run(under_load(made, in_the_dark, rounds))
