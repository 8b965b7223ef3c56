"""Workers replaced one after the other under load, in order: told to leave by an administrator, or by a signal.

Those that come may be of another version than those that go.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from octavo_client import AsyncClient

from tests.faults.cluster import Cluster, cluster, finish
from tests.faults.streams import Load, Tally, some_requests
from tests.patience import PATIENCE, until

WORKERS, STREAMS = 3, 12
WAYS = tuple(product(("signal", "administrator"), ("replacement first", "replacement after")))


@dataclass
class Outcome:
    """Of a run."""

    tally: Tally
    ways: Counter[str] = field(default_factory=Counter)
    exit_codes: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """From the word to a worker's end."""

    def figures(self) -> dict[str, Any]:
        """As the make target prints them."""
        return {
            "drains": sum(self.ways.values()),
            "ways": dict(self.ways),
            "exit_codes": {str(code): count for code, count in self.exit_codes.items()},
            "drain_s_max": round(max(self.seconds), 2),
            "streams": self.tally.ended,
            "failed": self.tally.failed,
            "lost": self.tally.lost,
            "duplicated": self.tally.duplicated,
            "changed": self.tally.changed,
        }


def drain(kind: str, model: Path, folder: Path, cycles: int) -> Outcome:
    """`cycles` times each of the workers of a kind is drained and replaced, in one way after the other."""
    with cluster(model, folder, kind) as made:
        return asyncio.run(under_load(made, ["never"] * (1 + cycles)))


def upgrade(kind: str, model: Path, folder: Path) -> Outcome:
    """Workers of the oldest minor version are replaced by ours, and those by workers of the next."""
    with cluster(model, folder, kind) as made:
        return asyncio.run(under_load(made, ["oldest", "never", "newer"]))


async def under_load(made: Cluster, generations: list[str]) -> Outcome:
    """All workers of one generation are replaced by those of the next; each is a version, or `never` for our own."""
    for _ in range(WORKERS):
        await asyncio.to_thread(made.start_worker, generations[0])
    load = Load(made.address, STREAMS, some_requests(18))
    await load.learn()
    outcome = Outcome(load.tally)
    streams = asyncio.create_task(load.run())
    async with AsyncClient(made.address) as admin:
        for number, version in enumerate(version for version in generations[1:] for _ in range(WORKERS)):
            await replace_the_oldest(made, admin, version, WAYS[number % len(WAYS)], outcome)
    load.is_stopped.set()
    await streams
    return outcome


async def replace_the_oldest(
    made: Cluster, admin: AsyncClient, version: str, way: tuple[str, str], outcome: Outcome
) -> None:
    """Once it has something to do."""
    told, order = way
    name = next(iter(made.workers))
    if order == "replacement first":
        await asyncio.to_thread(made.start_worker, version)
    await until(lambda: is_busy(admin, name), f"{name} gets nothing to do")
    process, began = made.workers.pop(name), time.monotonic()
    if told == "administrator":
        await admin.drain_worker(name)
        await until(lambda: is_idle(admin, name), f"{name} has work without end")
    os.kill(process.pid, signal.SIGTERM)
    outcome.exit_codes[await asyncio.to_thread(process.wait, PATIENCE)] += 1
    outcome.seconds.append(time.monotonic() - began)
    outcome.ways[f"{told}, {order}"] += 1
    finish(process)
    if order == "replacement after":
        await asyncio.to_thread(made.start_worker, version)


async def is_busy(admin: AsyncClient, name: str) -> bool:
    """Whether a worker has sequences."""
    [worker] = [each for each in (await admin.status()).workers if each.worker_id == name]
    return bool(worker.running or worker.swapped)


async def is_idle(admin: AsyncClient, name: str) -> bool:
    return not await is_busy(admin, name)
