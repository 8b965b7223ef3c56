"""Schedules that preempt a request, numbered: case k always means the same, and n cases in a row cover all settings evenly.

Two requests run side by side, and tell log-probabilities. The senior grows into a page that is not there when the junior
knows `position` tokens of its answer; so the junior (a branch of it) gives its pages up and comes back later. Its ids, and
their log-probabilities, must be those of an undisturbed run: alone, in a pool that is never full, in whole chunks, without
a prefix cache.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, product
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from octavo_scheduler.core import Settings
from octavo_scheduler.core.request import ALWAYS, Biases, RequestSpec, Sampling
from octavo_scheduler.core.settings import PreemptMode

from tests.doubles.tiny_model import make_tiny_model
from tests.equality.engine import RunnerWorker
from tests.equality.schedule import Outcome, Schedule
from tests.pools import poison

PAGE_SIZES, CHUNKS, BRANCHES = (1, 4, 16), (1, 7, 16, 17), (1, 3)
MODES: tuple[PreemptMode, ...] = ("swap", "drop")
WORDS = [(first, second) for first in range(0, 288, 3) for second in range(1, 288, 37)]
BIASES = Biases(
    tokens=(*range(2, 288, 7), *range(0, 288, 5), *(token for word in WORDS for token in word)),
    values=(*(-inf,) * 41, *(1.5,) * 58, *(0.0, -inf) * len(WORDS)),
    until=(*(6,) * 41, *(ALWAYS,) * (58 + 2 * len(WORDS))),
    contexts=(*(0,) * 99, *(-1, 1) * len(WORDS)),
)
"""Some tokens come after six others only, some come more often, and some words of two tokens never do."""
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=1.0),
    Sampling(temperature=0.8, top_p=0.9),
    Sampling(temperature=0.9, top_k=20, repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.3),
    Sampling(temperature=1.0, top_k=4, biases=BIASES),
)
ANSWER = 12
POSITIONS = range(1, ANSWER)
TRIES = 100
"""Pairs of prompts tried for a position before the next one is taken: some cannot be had, such as 1 with pages of 16."""
STRIDE = 151
"""Shares no factor with the grid's size: numbers in a row differ in many settings, and a few hundred are a fair sample."""
GRID = tuple(product(PAGE_SIZES, CHUNKS, (False, True), MODES, BRANCHES, range(len(SAMPLINGS))))
LONGEST_PROMPT = 34
MOST_PAGES = 256
MODEL: dict[str, Any] = {
    "hidden": 16,
    "layers": 2,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 8,
    "intermediate": 32,
    "vocab": 288,
}


Answer = list[tuple[int, bytes]]
"""Ids and their log-probabilities."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """`senior` and `junior` are lengths of prompts, `pages` is the size of the pool.

    With `head` the prefix cache is on, and so much of the junior's prompt was computed for an earlier request.
    """

    page_size: int
    chunk: int
    head: int
    mode: PreemptMode
    n: int
    sampling: int
    position: int
    senior: int
    junior: int
    senior_answer: int
    pages: int


def case(number: int) -> Case:
    """Each run of len(GRID) numbers goes once through all settings; positions change from one such run to the next."""
    settings = GRID[number * STRIDE % len(GRID)]
    draw = Random(number)
    turns = (number + number // len(GRID) + nth // TRIES for nth in count())
    positions = (POSITIONS[turn % len(POSITIONS)] for turn in turns)
    return next(found for position in positions if (found := attempt(*settings, position, draw)) is not None)


def attempt(
    page_size: int, chunk: int, has_cache: bool, mode: PreemptMode, n: int, sampling: int, position: int, draw: Random
) -> Case | None:
    """A case with prompts of random lengths, if they happen to force the position.

    The senior must need a further page just then, and be asked first; the pool must hold each request to its end, and
    admit both of them at once.
    """
    senior, junior = draw.randint(1, LONGEST_PROMPT), draw.randint(1, LONGEST_PROMPT)
    head = draw.randint(1, junior) if has_cache else 0
    first = Row(senior, 0, chunk, 1, page_size)
    second = Row(junior, min(head, junior - 1) // page_size * page_size, chunk, n, page_size)
    moment = second.prefill_steps + position
    pages = first.pages(moment) + second.pages(moment - 1) - 1
    answer = max(first.tokens(moment) - senior, 0) + 4
    whole = max(math.ceil((senior + answer) / page_size), math.ceil((junior + ANSWER) / page_size))
    at_once = math.ceil(senior / page_size) + 1 + math.ceil(junior / page_size)
    if first.pages(moment) == first.pages(moment - 1) or pages < max(whole, at_once):
        return None
    return Case(
        page_size=page_size,
        chunk=chunk,
        head=head,
        mode=mode,
        n=n,
        sampling=sampling,
        position=position,
        senior=senior,
        junior=junior,
        senior_answer=answer,
        pages=pages,
    )


@dataclass(frozen=True)
class Row:
    """How a request grows that gets a chunk, or a token, in every step from 1 on."""

    prompt: int
    cached: int
    chunk: int
    n: int
    page_size: int

    @property
    def prefill_steps(self) -> int:
        return math.ceil((self.prompt - self.cached) / self.chunk)

    def tokens(self, step: int) -> int:
        """Of one branch, computed once the step is done."""
        if step <= self.prefill_steps:
            return min(self.cached + self.chunk * step, self.prompt)
        return self.prompt + step - self.prefill_steps

    def pages(self, step: int) -> int:
        """Branches share the full pages of the prompt, and all of its pages until they write."""
        tokens = self.tokens(step)
        own = math.ceil(tokens / self.page_size)
        if tokens <= self.prompt:
            return own
        shared = self.prompt // self.page_size
        return shared + self.n * (own - shared)


class Bench:
    """Runs cases on a tiny model, by one thread: it is so small that a second one would only be waited for.

    Undisturbed answers are computed once.
    """

    def __init__(self, folder: Path, kernels: str = "reference") -> None:
        model = make_tiny_model(folder, **MODEL)
        settings = {"kernels": kernels, "invariant": True, "threads": 1, "pages": MOST_PAGES, "host_pages": MOST_PAGES}
        self.workers = {
            size: RunnerWorker(model, page_size=size, max_step_tokens=64, max_context=128, max_slots=8, **settings)
            for size in PAGE_SIZES
        }
        self.undisturbed = cache(self._undisturbed)

    def run(self, case: Case) -> Outcome:
        """The case's requests, with what was in the pages before made unreadable."""
        worker = self.workers[case.page_size]
        for pool in (worker.runner.cache.pool, worker.runner.cache.host):
            poison(pool)
        settings = Settings(max_chunk=case.chunk, preempt=case.mode, prefix_cache=case.head > 0)
        schedule = Schedule(worker, case.pages, settings)
        junior = request("junior", case.junior, case.sampling, ANSWER, case.n)
        if case.head:
            schedule.run([replace(junior, id="earlier", prompt=junior.prompt[: case.head], max_tokens=1, n=1)])
        return schedule.run([request("senior", case.senior, case.sampling, case.senior_answer, 1), junior])

    def differs(self, case: Case, outcome: Outcome) -> bool:
        """Whether any answer is not what it would have been without the other request."""
        juniors = self.undisturbed("junior", case.junior, case.sampling, case.n)
        (senior,) = self.undisturbed("senior", case.senior, case.sampling, 1)
        found = [answer_of(outcome, "junior", branch) for branch in range(case.n)]
        return found != juniors or answer_of(outcome, "senior", 0) != senior[: case.senior_answer]

    def _undisturbed(self, name: str, prompt: int, sampling: int, n: int) -> list[Answer]:
        schedule = Schedule(self.workers[16], MOST_PAGES, Settings(prefix_cache=False))
        length = ANSWER if name == "junior" else LONGEST_PROMPT + ANSWER + 4
        outcome = schedule.run([request(name, prompt, sampling, length, n)])
        return [answer_of(outcome, name, branch) for branch in range(n)]


def answer_of(outcome: Outcome, name: str, branch: int) -> Answer:
    return list(zip(outcome.ids[name, branch], outcome.logprobs[name, branch], strict=True))


def request(name: str, prompt: int, sampling: int, max_tokens: int, n: int) -> RequestSpec:
    """A request whose prompt and seed follow from its name and the prompt's length."""
    draw = Random(f"{name} {prompt}")
    tokens = tuple(draw.randrange(MODEL["vocab"]) for _ in range(prompt))
    base = SAMPLINGS[sampling]
    return RequestSpec(
        id=name,
        prompt=tokens,
        max_tokens=max_tokens,
        n=n,
        sampling=replace(base, seed=draw.getrandbits(64)),
        logprobs=2,
    )
