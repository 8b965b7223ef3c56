"""The auditor at work: whatever is done to a pool, the page goes out of use, is counted, and every answer stays right."""

import itertools
import random
from collections.abc import Callable

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.audit import violations
from octavo_scheduler.core.auditor import LEAST_PAUSE, PAGES_PER_SECOND
from octavo_scheduler.core.events import Tick
from octavo_scheduler.core.ledger import broken_pages, references
from octavo_scheduler.core.pages import Content, PagePool
from octavo_scheduler.core.worker import Worker

from tests.doubles.paper_worker import PaperWorker, answer
from tests.doubles.table_top import TableTop

HEAD = [7] * 8
"""Two pages that every prompt begins with, so that pages are shared."""


class Mending(TableTop):
    """The auditor looks at once, as far as the clock is concerned; all laws hold but that no page is out of use."""

    def tick(self) -> None:
        self.now += 2 * LEAST_PAUSE
        self.apply(Tick())

    def _audit(self) -> None:
        found = [law for law in violations(self.core) if "are quarantined" not in law]
        assert not found, found


def busy(preempt: str = "swap", num_requests: int = 6) -> tuple[Mending, dict[str, list[int]]]:
    settings = Settings(preempt="swap" if preempt == "swap" else "drop", max_chunk=5)
    table = Mending(settings, w=PaperWorker(pages=40, host_pages=24))
    table.submit("first", HEAD, 2)
    table.run()
    prompts = {f"r{n}": [*HEAD, n, n + 1, n + 2] for n in range(num_requests)}
    for name, prompt in prompts.items():
        table.submit(name, prompt, 40)
    return table, prompts


def held(worker: Worker) -> int:
    return next(page for sequence in worker.running for page in sequence.table)


def free_a_held_page(worker: Worker) -> int:
    page = worker.running[-1].table[-1]
    worker.device.give_back([page])
    return page


def lose_a_reference(worker: Worker) -> int:
    page = next(page for page, refs in enumerate(worker.device.refs) if refs > 1)
    worker.device.refs[page] -= 1
    return page


def invent_a_reference(worker: Worker) -> int:
    page = held(worker)
    worker.device.refs[page] += 1
    return page


def leak_a_page(worker: Worker) -> int:
    (page,) = worker.device.take(1) or [0]
    return page


def fence_for_a_step_that_never_was(worker: Worker) -> int:
    page = worker.device.free.pop()
    worker.device.fenced[999] = [page]
    return page


def free_a_page_twice(worker: Worker) -> int:
    page = worker.device.free[0]
    worker.device.free.append(page)
    return page


def offer_a_held_page(worker: Worker) -> int:
    page = held(worker)
    worker.device.free.append(page)
    return page


def lose_a_free_page(worker: Worker) -> int:
    return worker.device.free.pop()


def publish_a_free_page(worker: Worker) -> int:
    page = worker.device.free[0]
    worker.device.publish(page, Content(b"key", (1, 2, 3, 4)))
    return page


def leak_a_host_page(worker: Worker) -> int:
    (page,) = worker.host.take(1) or [0]
    return page


CORRUPTIONS: list[Callable[[Worker], int]] = [
    free_a_held_page,
    lose_a_reference,
    invent_a_reference,
    leak_a_page,
    fence_for_a_step_that_never_was,
    free_a_page_twice,
    offer_a_held_page,
    lose_a_free_page,
    publish_a_free_page,
    leak_a_host_page,
]


def conserves(pool: PagePool) -> bool:
    parts = pool.num_free + pool.num_cached + pool.num_held + pool.num_fenced + len(pool.quarantined)
    return parts == pool.total


@pytest.mark.parametrize("corrupt", CORRUPTIONS)
def test_a_broken_law_costs_one_page_and_no_answer(corrupt: Callable[[Worker], int]) -> None:
    table, prompts = busy()
    worker = table.core.workers["w"]
    for _ in range(4):
        table.turn()
    pool = worker.host if corrupt is leak_a_host_page else worker.device
    page = corrupt(worker)
    table.tick()
    assert pool.quarantined == {page}
    assert table.core.counters.audit_violations == 1
    (finding,) = table.core.auditor.findings
    assert finding.startswith(f"worker w, {'host' if pool is worker.host else 'device'} page {page} ")
    table.run()
    assert {name: table.tokens[name] for name in prompts} == {n: answer(prompt, 40) for n, prompt in prompts.items()}
    assert pool.num_available == pool.total - 1
    table.tick()
    assert table.core.counters.audit_violations == 1, "a page is found once"


def test_a_page_that_somebody_else_may_have_written_is_trusted_by_nobody() -> None:
    table, prompts = busy()
    worker, paper = table.core.workers["w"], table.workers["w"]
    assert isinstance(paper, PaperWorker)
    for _ in range(4):
        table.turn()
    table.plan("w")
    num_in_flight = len(worker.in_flight)
    page = free_a_held_page(worker)
    paper.device[page] = 666
    table.tick()
    assert not worker.running
    assert not worker.in_flight
    assert worker.device.num_available == worker.device.num_usable
    assert not worker.device.num_cached, "what was computed from that page is not to be found either"
    table.run()
    assert {name: table.tokens[name] for name in prompts} == {n: answer(prompt, 40) for n, prompt in prompts.items()}
    assert table.core.counters.stale_messages == num_in_flight > 0, "they had read the page"


def test_a_page_counted_too_high_disturbs_nobody() -> None:
    table, _ = busy()
    worker = table.core.workers["w"]
    table.turn()
    running = list(worker.running)
    invent_a_reference(worker)
    table.tick()
    assert list(worker.running) == running


@pytest.mark.parametrize("seed", range(60))
def test_any_corruption_at_any_moment_is_mended(seed: int) -> None:
    draw = random.Random(seed)
    table, prompts = busy(draw.choice(["swap", "drop"]), num_requests=draw.randrange(2, 8))
    worker = table.core.workers["w"]
    for _ in range(3):
        for _ in range(draw.randrange(1, 30)):
            draw.choice([table.plan, table.deliver])("w")
        if worker.running and max(worker.device.refs) > 1 and worker.device.free and worker.host.num_free:
            draw.choice(CORRUPTIONS)(worker)
            table.tick()
            assert conserves(worker.device)
            assert conserves(worker.host)
    table.run()
    for name, prompt in prompts.items():
        assert table.tokens[name] == answer(prompt, 40)
    num_lost = len(worker.device.quarantined) + len(worker.host.quarantined)
    assert table.core.counters.audit_violations >= num_lost
    assert worker.device.num_available == worker.device.num_usable
    assert worker.host.num_available == worker.host.num_usable
    assert not table.core.requests


def test_a_page_given_back_twice_is_counted_too() -> None:
    table, _ = busy()
    worker = table.core.workers["w"]
    table.run()
    worker.device.give_back([worker.device.free[0]])
    table.tick()
    assert table.core.counters.audit_violations == 1
    assert "given back more often than it was taken" in table.core.auditor.findings[0]


def test_a_miscount_is_put_right_and_costs_no_page() -> None:
    table, _ = busy()
    worker = table.core.workers["w"]
    table.turn()
    worker.device.num_held += 1
    worker.device.num_extra_refs += 1
    table.tick()
    assert table.core.counters.audit_violations == 3
    assert not worker.device.quarantined
    table.run()


@pytest.mark.parametrize("page", [0, -1, 99])
def test_a_table_that_names_no_page_of_the_pool_is_found(page: int) -> None:
    pool = PagePool(4)
    broken = list(broken_pages(pool, references(pool, [[page]]), []))
    assert broken == [(0, "a table names the null page, or none of this pool")]


def test_a_request_that_the_rest_of_the_pool_cannot_hold_is_refused() -> None:
    table = Mending(w=PaperWorker(page_size=4, pages=4))
    leak_a_page(table.core.workers["w"])
    table.tick()
    table.submit("r", [1] * 12, 4)
    assert table.refused["r"].reason == "TOO_LONG"
    table.submit("s", [1] * 12, 1)
    table.run()
    assert table.tokens["s"] == answer([1] * 12, 1)


def test_workers_take_turns_and_large_pools_are_looked_at_less_often() -> None:
    table = TableTop(a=PaperWorker(), b=PaperWorker(), c=PaperWorker(pages=30_000))
    looked: list[tuple[float, str]] = []
    while len(looked) < 7:
        before = table.core.auditor.turn
        table.apply(Tick())
        if table.core.auditor.turn != before:
            looked.append((table.now, table.core.auditor.turn))
        table.now += 0.25
    seconds = (30_000 + 8) / PAGES_PER_SECOND
    assert [name for _, name in looked] == ["a", "b", "c", "a", "b", "c", "a"]
    pauses = [after - before for (before, _), (after, _) in itertools.pairwise(looked)]
    assert pauses[:2] == [LEAST_PAUSE, LEAST_PAUSE]
    assert pauses[2] >= seconds
