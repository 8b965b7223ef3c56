"""Steps in which every sequence gets one token: so many sequences with so much context each."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from math import ceil

import numpy as np
from octavo.v1 import step_pb2
from octavo_client import AsyncClient
from octavo_worker.runner import Runner

from benchmarks.service import follow, serve_all
from benchmarks.workload import Work
from tests.worker.plans import growth, int32, new_slots, rows, uint16

NUM_STEPS = 64
SEQUENCES = (1, 8, 32, 64)
CONTEXTS = (256, 1024, 4096)


class Stopwatch:
    """A function that counts the seconds it takes."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self) -> None:
        started = time.perf_counter()
        self.function()
        self.seconds += time.perf_counter() - started


def pages_needed(sequences: int, context: int, page_size: int) -> int:
    """Of the pool, for all steps."""
    return sequences * ceil((context + NUM_STEPS + 1) / page_size)


def prompts(sequences: int, context: int) -> list[list[int]]:
    """Each begins like the shorter one of the same number, and like no other."""
    draws = [random.Random(f"prompt {number}") for number in range(sequences)]
    return [[draw.randrange(100, 49000) for _ in range(context)] for draw in draws]


def decode_inside(runner: Runner, sequences: int, context: int) -> dict[str, float]:
    """NUM_STEPS steps; K and V of the context are zeros, which attention reads all the same.

    `rate`: tokens per second of all sequences together; `outside_share`: of the time, not spent in model and sampler.
    """
    size = runner.config.page_size
    per_sequence = pages_needed(1, context, size)
    pages = {slot: range(1 + slot * per_sequence, 1 + (slot + 1) * per_sequence) for slot in range(sequences)}
    first = step_pb2.StepPlan(
        step=1,
        full=True,
        zero=int32(*(page for each in pages.values() for page in each)),
        new_slots=new_slots(dict(enumerate(prompts(sequences, context))), computed=context - 1),
        growth=growth(pages),
        rows=rows(dict.fromkeys(range(sequences), 1)),
    )
    runner.reset()
    runner.execute(first)
    plans = [step_pb2.StepPlan(step=2 + n, rows={"slot": uint16(*range(sequences))}) for n in range(NUM_STEPS)]
    frames = [plan.SerializeToString() for plan in plans]
    replay = runner.decoder.replay
    runner.decoder.replay = watch = Stopwatch(replay)
    started = time.perf_counter()
    for frame in frames:
        runner.execute(step_pb2.StepPlan.FromString(frame))
    seconds = time.perf_counter() - started
    runner.decoder.replay = replay
    runner.reset()
    return {"rate": NUM_STEPS * sequences / seconds, "outside_share": 1 - watch.seconds / seconds}


async def decode_served(client: AsyncClient, sequences: int, context: int) -> dict[str, float]:
    """The same `rate` through a server that caches prefixes: first all prompts are computed, each into pages of its own."""
    asked = [Work(prompt, 1) for prompt in prompts(sequences, context)]
    await serve_all(client, asked)
    times: list[list[float]] = [[] for _ in asked]
    streams = (follow(client, Work(work.prompt, NUM_STEPS), each) for work, each in zip(asked, times, strict=True))
    await asyncio.gather(*streams)
    return {"rate": common_rate(times)}


def common_rate(times: Sequence[Sequence[float]]) -> float:
    """Tokens per second of streams, from when the last of them has begun until the first one ends."""
    begin, end = max(each[0] for each in times), min(each[-1] for each in times)
    ordered = np.sort(np.concatenate([np.asarray(each) for each in times]))
    count = np.count_nonzero((ordered > begin) & (ordered <= end))
    return float(count / (end - begin))
