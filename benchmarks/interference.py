"""A long prompt arrives among streams that are being answered: how long it waits, and what they notice of it."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise

from octavo_client import AsyncClient

from benchmarks.service import follow
from benchmarks.workload import Work, long_prompt

NUM_STREAMS = 16
STREAM_PROMPT = 256
LONG_PROMPT = 5000
TOKENS_BEFORE = 32
SECONDS_BETWEEN_LOOKS = 0.01
STREAM_TOKENS = 4000
"""More than come until the long prompt is done; then the streams are cancelled."""


async def interfere(client: AsyncClient) -> dict[str, float]:
    """Streams first, the long prompt when all of them have some tokens. See `summarise`."""
    times: list[list[float]] = [[] for _ in range(NUM_STREAMS)]
    works = [Work(long_prompt(STREAM_PROMPT, number).prompt, STREAM_TOKENS) for number in range(NUM_STREAMS)]
    streams = [asyncio.create_task(follow(client, work, each)) for work, each in zip(works, times, strict=True)]
    try:
        while min(map(len, times)) < TOKENS_BEFORE:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        began, arrived = max(each[0] for each in times), time.perf_counter()
        first: list[float] = []
        await follow(client, long_prompt(LONG_PROMPT, NUM_STREAMS), first)
        while min(each[-1] for each in times) < first[0]:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    return summarise(times, began, arrived, first[0])


def summarise(times: Sequence[Sequence[float]], began: float, arrived: float, ended: float) -> dict[str, float]:
    """In seconds, from when each token of each stream came: the long prompt's first token, and the gaps between tokens.

    A gap that spans the long prompt's arrival or its end counts to it.
    """
    gaps = [gap for each in times for gap in pairwise(each)]
    before = [later - earlier for earlier, later in gaps if earlier >= began and later <= arrived]
    meanwhile = [later - earlier for earlier, later in gaps if later > arrived and earlier < ended]
    return {
        "first_token": ended - arrived,
        "median_before": statistics.median(before),
        "median_meanwhile": statistics.median(meanwhile),
        "longest_meanwhile": max(meanwhile),
    }
