"""Workers killed one after the other under load, each at a chosen moment of its step."""

import asyncio
import random
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.cluster import Cluster, cluster
from tests.faults.streams import Load, Tally, some_requests
from tests.faults.worker import PHASES
from tests.patience import until

WORKERS, STREAMS = 3, 12


@dataclass
class Outcome:
    """Of a run."""

    tally: Tally
    phases: Counter[str]
    detected: list[float]
    """Seconds."""

    def figures(self) -> dict[str, Any]:
        """As the make target prints them."""
        ms = sorted(1e3 * each for each in self.detected) or [0.0]
        return {
            "kills": sum(self.phases.values()),
            "phases": dict(self.phases),
            "streams": self.tally.ended,
            "failed": self.tally.failed,
            "lost": self.tally.lost,
            "duplicated": self.tally.duplicated,
            "changed": self.tally.changed,
            "detect_ms_p50": round(statistics.median(ms), 1),
            "detect_ms_p99": round(ms[min(len(ms) - 1, int(0.99 * len(ms)))], 1),
        }


def kill(kind: str, model: Path, folder: Path, count: int) -> Outcome:
    """`count` kills of workers of a kind."""
    with cluster(model, folder, kind) as made:
        return asyncio.run(under_load(made, count))


async def under_load(made: Cluster, count: int) -> Outcome:
    draw = random.Random(5)
    for _ in range(WORKERS):
        await asyncio.to_thread(made.start_worker)
    load = Load(made.address, STREAMS, some_requests(18))
    await load.learn()
    streams = asyncio.create_task(load.run())
    detected: list[float] = []
    names: set[str] = set()
    for number in range(count):
        names.add(await asyncio.to_thread(made.start_worker, PHASES[number % len(PHASES)], draw.randrange(2, 30)))
        await killed(made, names)
    for at, name, _ in made.kills():
        if (seen := await asyncio.to_thread(made.gone, name, at)) is not None:
            detected.append(seen[0])
    load.is_stopped.set()
    await streams
    return Outcome(load.tally, Counter(phase for _, _, phase in made.kills()), detected)


async def killed(made: Cluster, names: set[str]) -> None:
    """Until a worker that was doomed has killed itself."""
    await until(lambda: names.intersection(made.reap()), "a worker that was doomed lives on")
