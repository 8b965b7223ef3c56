"""Requests that arrive by chance, or as soon as others have ended; each is a Recording of what its reader saw."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Self

from octavo_client.demo_summary import Recording
from octavo_client.errors import ConfigError, OctavoError
from octavo_client.params import SamplingParams
from octavo_client.results import Event

LEAST_TOKEN = 3
"""Ids below are control tokens in most vocabularies."""

Ask = Callable[[list[int], SamplingParams], AsyncGenerator[Event]]


@dataclass(frozen=True)
class Span:
    """Lengths, evenly spread between two numbers of tokens."""

    least: int
    most: int

    @classmethod
    def read(cls, text: str) -> Self:
        """Of "128" or "100-500". Raises ConfigError."""
        least, _, most = text.partition("-")
        try:
            span = cls(int(least), int(most or least))
        except ValueError:
            raise ConfigError(f"{text} is not a number of tokens, nor two with a dash between them.") from None
        if not 1 <= span.least <= span.most:
            raise ConfigError(f"{text} does not go from 1 or more tokens up.")
        return span


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to ask for. Equal plans ask for the same, in the same order, at the same times."""

    requests: int
    rate: float | None
    """Requests per second, with random gaps between them (a Poisson process); None: closed loop."""
    concurrency: int
    """Requests alive at once in a closed loop."""
    prompt: Span
    answer: Span
    vocab_size: int
    seed: int = 0


class Load:
    """Runs a plan once. `ask` opens the stream of one request."""

    def __init__(self, plan: Plan, ask: Ask) -> None:
        self._plan = plan
        self._ask = ask
        self._chance = random.Random(plan.seed)
        self._room = asyncio.Semaphore(plan.concurrency)

    async def run(self) -> list[Recording]:
        """All recordings, in order of arrival."""
        tasks: list[asyncio.Task[Recording]] = []
        began, due = time.monotonic(), 0.0
        for _ in range(self._plan.requests):
            prompt, params = self._next()
            if self._plan.rate is None:
                await self._room.acquire()
            else:
                await asyncio.sleep(max(0.0, began + due - time.monotonic()))
                due += self._chance.expovariate(self._plan.rate)
            tasks.append(asyncio.create_task(self._one(prompt, params)))
            tasks[-1].add_done_callback(lambda _: self._room.release())
        return await asyncio.gather(*tasks)

    def _next(self) -> tuple[list[int], SamplingParams]:
        """Random ids, so that lengths are exact and no prefix is found."""
        plan, chance = self._plan, self._chance
        length = chance.randint(plan.prompt.least, plan.prompt.most)
        prompt = [chance.randrange(LEAST_TOKEN, plan.vocab_size) for _ in range(length)]
        most = chance.randint(plan.answer.least, plan.answer.most)
        return prompt, SamplingParams(temperature=0, max_tokens=most, ignore_eos=True)

    async def _one(self, prompt: list[int], params: SamplingParams) -> Recording:
        recording = Recording(started=time.monotonic())
        try:
            async for event in self._ask(prompt, params):
                recording.note(event, time.monotonic())
        except OctavoError as error:
            recording.error = str(error)
        return recording
