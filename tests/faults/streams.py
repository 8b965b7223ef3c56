"""Streams that are checked token by token: nothing lost, nothing twice, nothing changed."""

import asyncio
import random
from dataclasses import dataclass, field

from octavo_client import AsyncClient, SamplingParams
from octavo_client.results import Delta, End

from tests.patience import PATIENCE

Answer = list[list[int]]  # of each branch


@dataclass(frozen=True)
class Asked:
    """A request. The same one has the same answer, whatever happens on the way."""

    prompt: tuple[int, ...]
    seed: int
    temperature: float
    n: int
    max_tokens: int

    @property
    def params(self) -> SamplingParams:
        return SamplingParams(
            max_tokens=self.max_tokens, temperature=self.temperature, seed=self.seed, n=self.n, ignore_eos=True
        )


def some_requests(count: int, *, max_tokens: int = 40) -> list[Asked]:
    """Greedy and sampled, with one answer and with three."""
    draw = random.Random(3)
    return [
        Asked(
            prompt=tuple(draw.randrange(3, 259) for _ in range(draw.randrange(2, 30))),
            seed=number,
            temperature=(0.0, 0.8)[number % 2],
            n=(1, 1, 3)[number % 3],
            max_tokens=draw.randrange(max_tokens // 2, max_tokens),
        )
        for number in range(count)
    ]


@dataclass
class Tally:
    """What became of streams."""

    ended: int = 0
    failed: int = 0
    lost: int = 0
    """Tokens that a stream should have had."""
    duplicated: int = 0
    """Tokens that came at an index that was there already, or after a gap."""
    changed: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def harm(self) -> int:
        """Streams that failed, and tokens lost, repeated or changed."""
        return self.failed + self.lost + self.duplicated + self.changed


async def ask(client: AsyncClient, asked: Asked, tally: Tally) -> Answer:
    """One stream; how its tokens lie is checked as they come."""
    found: Answer = [[] for _ in range(asked.n)]
    has_ended = False
    async for event in client.stream({"prompt_token_ids": list(asked.prompt)}, asked.params, timeout=PATIENCE):
        if isinstance(event, Delta):
            if event.first_index != len(found[event.index]):
                tally.duplicated += 1
            found[event.index] += event.token_ids
        has_ended = has_ended or isinstance(event, End)
    if not has_ended:
        tally.lost += 1
    return found


async def check(client: AsyncClient, asked: Asked, truth: Answer, tally: Tally) -> None:
    """One stream, compared with what it should be."""
    try:
        found = await ask(client, asked, tally)
    except Exception as error:
        tally.failed += 1
        tally.errors.append(f"{type(error).__name__}: {error}")
        return
    tally.ended += 1
    for ours, theirs in zip(found, truth, strict=True):
        tally.lost += max(0, len(theirs) - len(ours))
        tally.changed += sum(a != b for a, b in zip(ours, theirs, strict=False))


class Load:
    """So many streams at once, one request after the other, until it is stopped."""

    def __init__(self, address: str, width: int, requests: list[Asked]) -> None:
        self.address, self.width, self.requests = address, width, requests
        self.tally = Tally()
        self.truth: dict[Asked, Answer] = {}
        self.is_stopped = asyncio.Event()

    async def learn(self) -> None:
        """The answers, while nothing is wrong."""
        async with AsyncClient(self.address) as client:
            for asked in self.requests:
                self.truth[asked] = await ask(client, asked, self.tally)

    async def run(self) -> None:
        """Streams, until stopped."""
        async with AsyncClient(self.address) as client, asyncio.TaskGroup() as tasks:
            for number in range(self.width):
                tasks.create_task(self.one_after_the_other(client, number))

    async def one_after_the_other(self, client: AsyncClient, number: int) -> None:
        while not self.is_stopped.is_set():
            asked = self.requests[number % len(self.requests)]
            number += self.width
            await check(client, asked, self.truth[asked], self.tally)
