"""Seeded histories of a whole service: conversations, branches, stops, preemption, lost workers, stale and bad results."""

import random
from collections.abc import Callable

from octavo_scheduler.core import Core, Settings
from octavo_scheduler.core.events import Drain, Event, Flush, Nack, Pin, Rates, Resume, StepDone, Tick, Unpin
from octavo_scheduler.core.states import WorkerState

from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker
from tests.doubles.table_top import TableTop

SYSTEM_PROMPTS = ([7, 7, 8, 9, 10, 11], [7, 7, 8, 9, 12], [3])
TENANTS = ("", "ada", "bob")
MOST_PROMPT_TOKENS = 40
LIVELY = 0.12
"""Share of events that are requests."""


def history(seed: int, make_core: Callable[[Settings], Core] = Core, num_events: int = 300) -> TableTop:
    """The same seed gives the same history. All requests have ended in the table top returned."""
    play = History(random.Random(seed), make_core)
    for number in range(num_events):
        play.step(number)
    play.table.join("last", PaperWorker(page_size=4, pages=64))
    play.table.run()
    play.table.assert_empty()
    return play.table


class History:
    def __init__(self, draw: random.Random, make_core: Callable[[Settings], Core]) -> None:
        self.draw = draw
        settings = Settings(
            max_chunk=draw.choice([None, 1, 3, 7]),
            max_step_tokens=draw.choice([8, 16, 64]),
            preempt=draw.choice(["auto", "swap", "drop"]),
            plans_in_flight=draw.choice([1, 2]),
            max_overtakes=draw.choice([1, 4]),
            max_queued_requests=draw.choice([8, 64]),
            policy=draw.choice(["fair", "fair", "fcfs"]),
            tenant_weights={"ada": 3.0},
            max_tenant_share=draw.choice([0.6, 1.0]),
        )
        self.table = TableTop(settings)
        self.table.core = make_core(settings)
        self.prompts: dict[str, list[int]] = {}
        self.table.join("w0", self.worker())

    def worker(self) -> PaperWorker:
        draw = self.draw
        return PaperWorker(
            page_size=draw.choice([1, 2, 3]),
            pages=draw.choice([24, 32, 48]),
            host_pages=draw.choice([0, 8, 32]),
            max_slots=draw.choice([3, 8]),
        )

    def step(self, number: int) -> None:
        table, draw = self.table, self.draw
        table.now += draw.random()
        name = draw.choice(list(table.workers))
        choice = draw.random()
        if choice < LIVELY:
            self.submit(f"r{number}")
        elif choice < 0.15:
            self.disturb(name, number)
        elif choice < 0.17:
            table.apply(Tick())
        elif choice < 0.58:
            table.plan(name)
        else:
            table.deliver(name)

    def submit(self, name: str) -> None:
        draw = self.draw
        before = draw.choice([*SYSTEM_PROMPTS, *(self.turn(other) for other in list(self.prompts)[-8:])])
        prompt = [*before, *(draw.randrange(VOCAB_SIZE) for _ in range(draw.randrange(1, 5)))]
        self.prompts[name] = prompt[-MOST_PROMPT_TOKENS:]
        tenant = draw.choice(TENANTS)
        max_tokens, n = draw.choice([None, 1, 4, 12, 20]), draw.choice([1, 1, 1, 3])
        held, ended = self.beginnings(max_tokens, n)
        self.table.submit(
            name,
            self.prompts[name],
            max_tokens,
            n=n,
            held=held,
            ended=ended,
            seed=draw.randrange(3),
            stop_token_ids=frozenset(draw.sample(range(VOCAB_SIZE), draw.choice([0, 30, 100]))),
            deadline=self.table.now + draw.randrange(1, 60) if draw.random() < 0.1 else None,
            priority=draw.randrange(2),
            tenant=tenant,
            salt=tenant,
            logprobs=draw.choice([None, None, 0, 3]),
            prompt_logprobs=draw.choice([None, None, None, 0, 2]),
        )
        for branch, tokens in enumerate(held):
            self.table.tokens[self.table.key(name, branch)] = list(tokens)
            self.table.logprobs[self.table.key(name, branch)] = [b""] * len(tokens)

    def beginnings(self, max_tokens: int | None, n: int) -> tuple[tuple[tuple[int, ...], ...], frozenset[int]]:
        """Of every few requests, what its client holds of its answers already, and which of these are whole."""
        draw, most = self.draw, min(max_tokens or 6, 6)
        if draw.random() < 0.8 or most == 1:
            return (), frozenset()
        ended = frozenset(draw.sample(range(n), draw.randrange(n)))
        lengths = [0 if branch in ended else draw.randrange(most) for branch in range(n)]
        return tuple(tuple(draw.randrange(VOCAB_SIZE) for _ in range(length)) for length in lengths), ended

    def turn(self, name: str) -> list[int]:
        """A conversation so far: prompt and what is known of the answer."""
        return [*self.prompts[name], *self.table.tokens[name]]

    def disturb(self, name: str, number: int) -> None:
        table, draw = self.table, self.draw
        match draw.randrange(11):
            case 0 | 1 if table.core.requests:
                request = draw.choice(sorted(table.core.requests))
                branch = draw.randrange(table.core.requests[request].spec.n)
                known = len(table.tokens[table.key(request, branch)])
                table.abort(request, at=draw.choice([None, 0, known]), branch=branch)
            case 2 if len(table.workers) < 3:
                table.join(f"w{number}", self.worker())
            case 3 if len(table.workers) > 1:
                table.kill(name)
            case 4 if table.core.workers[name].state is WorkerState.DRAINING:
                table.apply(Resume(name))
            case 4 if len(table.workers) > 1:
                table.apply(Drain(name))
            case 5 if table.results[name]:
                step = table.results[name][0].step
                table.results[name].clear()
                bad: list[Event] = [Nack(name, step), StepDone(name, step, (VOCAB_SIZE, -1) * 20)]
                table.apply(draw.choice(bad))
            case 6:
                table.apply(StepDone(name, 10_000, (1, 2, 3)))
            case 7:
                table.apply(Rates(name, draw.choice([1e3, 1e9]), 0.0))
            case 8:
                table.apply(Flush())
            case 9:
                pinned = draw.choice(SYSTEM_PROMPTS)
                table.apply(Pin(name=f"pin {draw.randrange(2)}", tokens=tuple(pinned), salt=draw.choice(TENANTS)))
            case 10:
                table.apply(Unpin(f"pin {draw.randrange(2)}"))
