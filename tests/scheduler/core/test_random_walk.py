"""The core under seeded random histories: joins, losses, arrivals, cancels, results in any interleaving."""

import random

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Drain, Nack, Tick
from octavo_scheduler.core.request import FinishReason
from octavo_scheduler.core.states import WorkerState

from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker, answer, told
from tests.doubles.table_top import TableTop


def walk(seed: int, num_events: int = 500, kind: type[TableTop] = TableTop) -> TableTop:
    draw, options = random.Random(seed), random.Random(-seed)
    settings = Settings(
        max_chunk=draw.choice([None, 1, 3, 7]),
        max_step_tokens=draw.choice([8, 16, 64]),
        preempt=draw.choice(["auto", "swap", "drop"]),
        plans_in_flight=draw.choice([1, 2]),
        max_overtakes=draw.choice([1, 4]),
        policy=draw.choice(["fair", "fcfs"]),
        max_wait_seconds=draw.choice([0.0, 20.0]),
        max_tenant_share=draw.choice([1.0, 1.0, 0.7]),
    )
    table = kind(settings)
    asked: dict[str, tuple[list[int], int, int]] = {}
    branches: dict[str, int] = {}
    ended: dict[str, frozenset[int]] = {}
    told_of: dict[str, int | None] = {}
    """How many log-probabilities a request asks for, and for its prompt."""
    constrained: dict[str, bool] = {}
    heads = [[draw.randrange(VOCAB_SIZE) for _ in range(6)] for _ in range(3)]

    def paper_worker() -> PaperWorker:
        return PaperWorker(
            page_size=draw.choice([1, 2, 3]),
            pages=draw.choice([12, 16, 32]),
            host_pages=draw.choice([0, 4, 16]),
            max_slots=draw.choice([3, 8]),
            minor=draw.choice([0, 1, 2, 2, 3, 3, 3]),
        )

    table.join("w0", paper_worker())
    given: dict[str, list[int]] = {}
    for number in range(num_events):
        table.now += draw.random()
        names = list(table.workers)
        choice = draw.random()
        if choice < 0.08:
            name = f"r{number}"
            head = heads[draw.randrange(3)][: draw.randrange(6)]
            prompt = head + [draw.randrange(VOCAB_SIZE) for _ in range(draw.randrange(1, 7 - len(head)))]
            asked[name] = (prompt, draw.randrange(1, 30), draw.randrange(3))
            deadline = table.now + draw.randrange(1, 60) if draw.random() < 0.1 else None
            branches[name] = draw.choice([1, 1, 1, 2, 4])
            constrained[name] = draw.random() < 0.4
            whole = [
                answer(prompt, asked[name][1], asked[name][2], branch, is_constrained=constrained[name])
                for branch in range(branches[name])
            ]
            held, ended[name] = beginnings(draw, whole)
            table.submit(
                name,
                prompt,
                asked[name][1],
                n=branches[name],
                seed=asked[name][2],
                deadline=deadline,
                priority=draw.randrange(2),
                tenant=draw.choice(["", "a", "b"]),
                queue_deadline=table.now + draw.randrange(1, 60) if draw.random() < 0.1 else None,
                held=held,
                ended=ended[name],
                logprobs=told_of.setdefault(name, options.choice([None, None, 0, 2])),
                prompt_logprobs=told_of.setdefault(f"prompt of {name}", options.choice([None, None, None, 1])),
                is_constrained=constrained[name],
            )
            given |= {table.key(name, branch): list(tokens) for branch, tokens in enumerate(held)}
        elif choice < 0.09 and table.core.requests:
            name = draw.choice(sorted(table.core.requests))
            table.abort(name, at=draw.choice([None, None, 0]), branch=draw.randrange(branches[name]))
        elif choice < 0.094 and len(names) < 3:
            table.join(f"w{number}", paper_worker())
        elif choice < 0.098 and len(names) > 1:
            table.kill(draw.choice(names))
        elif choice < 0.1:
            drained = draw.choice(names)
            if table.core.workers[drained].state is WorkerState.READY and len(names) > 1:
                table.apply(Drain(drained))
        elif choice < 0.104:
            nacked = draw.choice(names)
            if table.results[nacked]:
                step = table.results[nacked][0].step
                table.results[nacked].clear()
                table.behind[nacked].clear()
                table.apply(Nack(nacked, step))
        elif choice < 0.12:
            table.apply(Tick())
        elif choice < 0.36 and table.owed:
            table.masked(draw.randrange(len(table.owed)), again=draw.random() < 0.2)
        elif choice < 0.64:
            table.plan(draw.choice(names))
        else:
            table.deliver(draw.choice(names))
    table.join("last", PaperWorker(page_size=4, pages=64))
    table.run()
    table.assert_empty()
    for name, (prompt, max_tokens, seed) in asked.items():
        for branch in sorted(set(range(branches[name])) - ended[name]):
            key = table.key(name, branch)
            whole_answer = answer(prompt, max_tokens, seed, branch, is_constrained=constrained[name])
            check(table, name, key, whole_answer, given.get(key, []))
            check_told(table, key, prompt, len(given.get(key, [])), told_of[name])
        if (count := told_of[f"prompt of {name}"]) is not None and name in table.started:
            assert table.scored[name] == b"".join(told(prompt, place, count) for place in range(1, len(prompt)))
    return table


def beginnings(draw: random.Random, whole: list[list[int]]) -> tuple[tuple[tuple[int, ...], ...], frozenset[int]]:
    """Of every fifth request, what its client holds of its answers already, and which of these are whole."""
    if draw.random() < 0.8:
        return (), frozenset()
    ended = frozenset(draw.sample(range(len(whole)), draw.randrange(len(whole))))
    lengths = [0 if branch in ended else draw.randrange(len(tokens)) for branch, tokens in enumerate(whole)]
    return tuple(tuple(tokens[:length]) for tokens, length in zip(whole, lengths, strict=True)), ended


def check(table: TableTop, name: str, key: str, expected: list[int], given: list[int]) -> None:
    """A request may be refused after it was queued, when the last worker that could hold it leaves."""
    assert (key in table.finished) != (name in table.refused), "each branch ends exactly once"
    if name in table.refused:
        assert table.tokens[key] == given
        return
    end = table.finished[key]
    assert table.tokens[key] == expected[: len(table.tokens[key])]
    if end.reason is FinishReason.LENGTH:
        assert len(table.tokens[key]) == len(expected) == end.num_tokens


def check_told(table: TableTop, key: str, prompt: list[int], num_given: int, count: int | None) -> None:
    """Each token that came has its log-probabilities, if they are asked for."""
    history, first = [*prompt, *table.tokens[key]], len(prompt) + num_given
    due = [b"" if count is None else told(history, place, count) for place in range(first, len(history))]
    assert table.logprobs[key] == due


@pytest.mark.parametrize("block", range(5))
def test_any_history_keeps_every_law_and_every_answer(block: int) -> None:
    swaps = drops = 0
    for seed in range(block * 40, (block + 1) * 40):
        table = walk(seed)
        swaps += table.core.counters.swaps + sum(w.num_swaps for w in table.core.workers.values())
        drops += table.core.counters.drops + sum(w.num_drops for w in table.core.workers.values())
    assert swaps > 20
    assert drops > 20


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = walk(7), walk(7)
    assert first.tokens == second.tokens
    assert first.plans == second.plans
