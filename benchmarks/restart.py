"""A scheduler is killed while streams run, and started again: are the workers back, and what became of the streams?

Real workers on a tiny model, real sockets, clients that were asked to resume. Half of the requests are greedy, the others
sampled; of these some leave the seed to the scheduler. What each must say is what it says undisturbed, afterwards.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo_client import AsyncClient, SamplingParams
from octavo_client.children import Child, Lifeline
from octavo_client.errors import RequestError
from octavo_client.results import Delta, End, Start

from tests.doubles.tiny_model import make_tiny_model
from tests.patience import until

STREAMS, WORKERS = 50, 4
ANSWER_TOKENS = 400
KILL_AFTER_TOKENS = 40
"""Of every stream."""


class Cluster:
    """One scheduler and some workers as processes, at addresses that stay the same."""

    def __init__(self, folder: Path, lifeline: Lifeline, num_workers: int, scheduler_flags: list[str]) -> None:
        self._folder, self._lifeline = folder, lifeline
        self._model = make_tiny_model(folder / "tiny")
        self._starts = 0
        self.address = f"unix:{folder}/grpc"
        self.scheduler_flags = scheduler_flags
        self.num_workers = num_workers
        self.scheduler = self.start_scheduler()
        self.workers = [self._start_worker(f"w{number}") for number in range(num_workers)]

    def start_scheduler(self) -> Child:
        self._starts += 1
        places = ["--listen", self.address, "--workers", f"ipc://{self._folder}/steps"]
        self.scheduler = self._child(f"scheduler-{self._starts}", "octavo_scheduler", *places, *self.scheduler_flags)
        return self.scheduler

    def _start_worker(self, name: str) -> Child:
        pool = ["--pages=2000", "--max-slots=16", "--device=cpu", "--dtype=float32", "--threads=1"]
        return self._child(
            name, "octavo_worker", f"--scheduler=ipc://{self._folder}/steps", f"--worker-id={name}", *pool
        )

    def _child(self, name: str, module: str, *flags: str) -> Child:
        command = [sys.executable, "-m", module, "--model", str(self._model), *flags]
        return Child(name, command, folder=self._folder, lifeline=self._lifeline, verbose=False)

    async def until_bound(self) -> None:
        await until(lambda: "workers dial" in self.scheduler.printed())

    async def until_joined(self, client: AsyncClient) -> None:
        """All workers are with the scheduler that runs now."""

        async def have_joined() -> bool:
            with suppress(RequestError):
                return len((await client.status(timeout=1)).workers) == self.num_workers
            return False

        await until(have_joined, "the workers do not come")

    def end(self) -> None:
        for child in (self.scheduler, *self.workers):
            child.end(10)


@contextmanager
def cluster(num_workers: int, scheduler_flags: list[str]) -> Iterator[Cluster]:
    lifeline = Lifeline()
    with tempfile.TemporaryDirectory(prefix="octavo-") as folder:
        made = Cluster(Path(folder), lifeline, num_workers, scheduler_flags)
        try:
            yield made
        finally:
            made.end()
            lifeline.close()


@dataclass
class Stream:
    """One request and what came of it."""

    number: int
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    seed: int | None = None
    held_at_kill: int = 0
    is_whole: bool = False

    @property
    def prompt(self) -> list[int]:
        return [(self.number * 31 + 7 * place) % 256 + 3 for place in range(5 + self.number % 40)]

    @property
    def params(self) -> SamplingParams:
        """Every second one is greedy; of the others every second one has no seed of its own."""
        is_greedy, draws = self.number % 2 == 0, self.number % 4 == 3
        return SamplingParams(
            max_tokens=ANSWER_TOKENS,
            ignore_eos=True,
            temperature=0.0 if is_greedy else 0.8,
            seed=self.seed if draws else self.number,
        )

    async def read(self, client: AsyncClient) -> None:
        async for event in client.stream(self.prompt, self.params):
            match event:
                case Start():
                    self.seed = event.seed
                case Delta():
                    self.tokens += event.token_ids
                    self.text += event.text
                case End():
                    self.is_whole = True

    async def is_as_undisturbed(self, client: AsyncClient) -> bool:
        output = (await client.generate(self.prompt, self.params)).outputs[0]
        return (output.token_ids, output.text) == (self.tokens, self.text)


async def measure(made: Cluster, num_streams: int, by: int) -> dict[str, Any]:
    """Ends the scheduler with signal `by` in the middle of all streams. Figures of what came of it."""
    await made.until_bound()
    async with AsyncClient(made.address, resume=True) as client:
        await made.until_joined(client)
        streams = [Stream(number) for number in range(num_streams)]
        reading = asyncio.gather(*(stream.read(client) for stream in streams))
        await until(lambda: all(len(stream.tokens) >= KILL_AFTER_TOKENS for stream in streams))
        os.kill(made.scheduler.pid, by)
        for stream in streams:
            stream.held_at_kill = 0 if stream.is_whole else len(stream.tokens)
        await until(lambda: made.scheduler.exit_code() is not None)
        made.start_scheduler()
        await made.until_bound()
        bound_at = time.monotonic()
        await made.until_joined(client)
        workers_back = time.monotonic() - bound_at
        await reading
        identical = [await stream.is_as_undisturbed(client) for stream in streams]
        counters = (await client.status()).counters
    return {
        "streams": num_streams,
        "resumed": sum(stream.is_whole and 0 < stream.held_at_kill < ANSWER_TOKENS for stream in streams),
        "identical": sum(identical),
        "workers": made.num_workers,
        "workers_back_s": round(workers_back, 2),
        "stale_messages": counters.stale_messages,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--workers", type=int, default=WORKERS)
    options = parser.parse_args()
    with cluster(options.workers, []) as made:
        figures = asyncio.run(measure(made, options.streams, signal.SIGKILL))
    print(json.dumps({"target": "restart-check", **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
