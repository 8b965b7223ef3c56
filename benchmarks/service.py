"""Octavo as users have it: scheduler and worker as processes, and a client in this one."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo_client import AsyncClient, SamplingParams
from octavo_client.local import LocalServer
from octavo_client.results import Delta
from octavo_worker.config import WorkerConfig
from octavo_worker.flags import read_flags
from octavo_worker.runner import Runner, build_runner
from octavo_worker.warming import warm_up

from benchmarks.plans import Recording, read_recording
from benchmarks.workload import Work

NO_PREFIX_CACHE = "--no-prefix-cache"


def greedy(num_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)


@dataclass(frozen=True)
class Served:
    """All answers to some work."""

    seconds: float
    ids: list[list[int]]


async def serve_all(client: AsyncClient, work: Sequence[Work]) -> Served:
    """All requests at once; each answer comes whole."""
    started = time.perf_counter()
    outputs = await asyncio.gather(*(client.generate(each.prompt, greedy(each.num_tokens)) for each in work))
    seconds = time.perf_counter() - started
    return Served(seconds, [output.outputs[0].token_ids for output in outputs])


async def follow(client: AsyncClient, work: Work, times: list[float]) -> None:
    """Streams an answer and adds to `times` when each of its tokens came, in monotonic seconds."""
    async for event in client.stream(work.prompt, greedy(work.num_tokens)):
        if isinstance(event, Delta):
            times += [time.perf_counter()] * len(event.token_ids)


def record(model: Path, work: Sequence[Work], worker_flags: Sequence[str], scheduler_flags: Sequence[str]) -> Recording:
    """What the scheduler plans for this work in a real run, and what the worker answers."""
    with tempfile.TemporaryDirectory(prefix="octavo-plans-") as folder:
        log = Path(folder, "log")
        flags = [*scheduler_flags, f"--record={log}", "--record-tokens"]
        with LocalServer(model, worker_flags=worker_flags, scheduler_flags=flags) as server:
            served = asyncio.run(_serve_once(server.address, work))
        recording = read_recording(log)
    if sorted(recording.ids) != sorted(served.ids):
        raise ValueError("the log holds other answers than the client got")
    return Recording(recording.plans, recording.tokens, served.ids)


async def _serve_once(address: str, work: Sequence[Work]) -> Served:
    async with AsyncClient(address) as client:
        return await serve_all(client, work)


def worker_config(model: Path, flags: Sequence[str]) -> WorkerConfig:
    """What `octavo worker` makes of these flags. Raises ConfigError."""
    return read_flags(["--model", str(model), "--scheduler", "ipc://none", *flags])


def start_runner(model: Path, flags: Sequence[str]) -> Runner:
    """The runner of `octavo worker` with these flags, warmed up, in this process. Raises WorkerError."""
    runner = build_runner(worker_config(model, flags))
    warm_up(runner)
    return runner
