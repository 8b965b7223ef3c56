"""Processes that are well where not all is: lines that are slow and break, clocks that jump, a host tier that is full."""

import asyncio
import random
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from octavo.v1 import admin_pb2
from octavo_client import AsyncClient

from tests.faults.cluster import Cluster, cluster
from tests.faults.silence import Proxy, free_port
from tests.faults.streams import Load, Tally, some_requests

WORKERS, STREAMS = 2, 24
MOST_DELAY_SECONDS = 0.004
MOST_CARRIED_BYTES = 2000
MOST_ROUNDS = 20


@dataclass
class Outcome:
    """Of a run: what became of the streams, and the scheduler's own counts."""

    tally: Tally
    counters: admin_pb2.Counters


class BadLine(Proxy):
    """Carries everything in pieces, each of them late, until it is cut. Whoever dials again gets a line that is as bad."""

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        draw = random.Random(0)
        with suppress(OSError):
            while data := source.recv(draw.randrange(1, MOST_CARRIED_BYTES)):
                time.sleep(draw.uniform(0.0, MOST_DELAY_SECONDS))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """In the middle of whatever is being said."""
        lines, self.lines = self.lines, []
        for line in lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()


def bad_lines(kind: str, model: Path, folder: Path, cuts: int) -> Outcome:
    """Two workers, each behind a line of its own; one after the other is cut."""
    with cluster(model, folder, kind, steps=f"tcp://127.0.0.1:{free_port()}") as made:
        lines = [BadLine(int(made.steps.rpartition(":")[2])) for _ in range(WORKERS)]
        try:
            for line in lines:
                made.start_worker(steps=f"tcp://127.0.0.1:{line.port}")

            async def act(load: Load) -> None:
                for number in range(cuts):
                    await some_streams(load)
                    lines[number % WORKERS].cut()
                await some_streams(load)

            return asyncio.run(under_load(made, act))
        finally:
            for line in lines:
                line.close()


def jumping_clocks(kind: str, model: Path, folder: Path, seconds: float) -> Outcome:
    """The wall clocks of scheduler and workers jump an hour to and fro."""
    library = folder / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    with cluster(model, folder, kind, environment={"LD_PRELOAD": str(library)}) as made:
        for _ in range(WORKERS):
            made.start_worker()

        async def act(load: Load) -> None:
            await asyncio.sleep(seconds)
            await some_streams(load)

        return asyncio.run(under_load(made, act))


def full_host_tier(model: Path, folder: Path) -> Outcome:
    """Streams that need more than a worker has on both tiers, and are to be swapped."""
    with cluster(model, folder, "paper", "--preempt=swap") as made:
        made.start_worker()

        return asyncio.run(under_load(made, until_both_swapped_and_dropped))


async def under_load(made: Cluster, act: Callable[[Load], Awaitable[None]]) -> Outcome:
    load = Load(made.address, STREAMS, some_requests(18))
    await load.learn()
    streams = asyncio.create_task(load.run())
    await act(load)
    load.is_stopped.set()
    await streams
    async with AsyncClient(made.address) as client:
        return Outcome(load.tally, (await client.status()).counters)


async def until_both_swapped_and_dropped(load: Load) -> None:
    """Which of them happens first depends on when streams come and go; after many streams both have."""
    async with AsyncClient(load.address) as client:
        for _ in range(MOST_ROUNDS):
            await some_streams(load)
            counters = (await client.status()).counters
            if counters.swaps and counters.drops:
                return


async def some_streams(load: Load) -> None:
    """Until as many more have ended as run at once."""
    enough = load.tally.ended + load.tally.failed + load.width
    while load.tally.ended + load.tally.failed < enough:
        await asyncio.sleep(0.01)
