"""Faults that other servers had in their schedulers, rebuilt here. docs/track-record.md lists them all."""

import random
from collections import deque

import numpy as np
import pytest
from octavo.v1 import step_pb2
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Nack, Tick
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import FinishReason
from octavo_scheduler.core.worker import Worker

from tests.doubles.paper_worker import PaperWorker, Slot, answer, column
from tests.doubles.table_top import TableTop

A, B = list(range(5, 11)), list(range(500, 505))


def worker_of(table: TableTop) -> Worker:
    return table.core.workers["w"]


def fill_pipe(table: TableTop) -> list[StepPlan]:
    """Makes plans until the worker takes no more of them."""
    plans = []
    while table.plan("w"):
        plans.append(worker_of(table).in_flight[-1])
    return plans


@pytest.mark.parametrize("end", [FinishReason.CANCELLED, FinishReason.DEADLINE, FinishReason.STOP, FinishReason.LENGTH])
@pytest.mark.parametrize("page_size", [1, 4])
def test_PG04_a_result_that_comes_after_its_request_ended_is_dropped_and_no_count_goes_below_zero(
    end: FinishReason, page_size: int
) -> None:
    for position in range(1, 13):
        table = TableTop(w=PaperWorker(page_size=page_size, pages=64))
        stop = frozenset(answer(A, 20)[position - 1 : position] if end is FinishReason.STOP else ())
        deadline = 50.0 if end is FinishReason.DEADLINE else None
        most = position if end is FinishReason.LENGTH else 20
        table.submit("a", A, most, stop_token_ids=stop, deadline=deadline)
        table.submit("b", B, 20)
        sequence = table.core.requests["a"].sequences[0]
        while len(table.tokens["a"]) < position and "a" not in table.finished:
            fill_pipe(table)
            pages = list(sequence.table)
            table.deliver("w")
        if "a" not in table.finished:
            fill_pipe(table)
            pages = list(sequence.table)
            table.abort("a") if end is FinishReason.CANCELLED else None
            table.now = 60.0
            table.apply(Tick())
        if end is not FinishReason.LENGTH:
            assert sequence.rows_in_flight > 0, "the case needs a result that is late"
        device = worker_of(table).device
        while sequence.rows_in_flight:
            assert set(pages).isdisjoint(device.free), "a plan in flight still names these pages"
            assert table.deliver("w")
        table.run()
        assert (sequence.rows_in_flight, sequence.pending) == (0, 0)
        assert table.finished["a"].reason is end
        assert table.tokens == {"a": answer(A, position), "b": answer(B, 20)}
        assert table.core.counters.generated_tokens == position + 20
        table.assert_empty()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("cache", [True, False])
def test_PG05_after_one_plain_request_every_page_is_free_or_cached_and_none_was_taken_for_nothing(
    depth: int, cache: bool
) -> None:
    settings = Settings(plans_in_flight=depth, prefix_cache=cache)
    table = TableTop(settings, w=PaperWorker(page_size=1, pages=256))
    table.submit("r", [1, 2, 3], 200)
    table.run()
    assert table.tokens["r"] == answer([1, 2, 3], 200)
    device = worker_of(table).device
    assert device.peak_held == 3 + 200 - 1, "the last token of an answer is never an input"
    assert (device.num_cached, device.num_free) == ((202, 54) if cache else (0, 256))
    assert (device.num_held, device.num_fenced, device.quarantined) == (0, 0, set())
    table.assert_empty()


@pytest.mark.parametrize("host_pages", [0, 32])
def test_PG06_after_each_of_three_storms_of_256_requests_in_a_small_pool_all_pages_are_there(host_pages: int) -> None:
    draw = random.Random(host_pages)
    table = TableTop(w=PaperWorker(page_size=4, pages=32, host_pages=host_pages, max_slots=16))
    device = worker_of(table).device
    head = list(range(8))
    for storm in range(3):
        asked = {}
        for number in range(256):
            prompt = head[: draw.randrange(9)] + [draw.randrange(900) for _ in range(draw.randrange(1, 17))]
            asked[f"{storm}/{number}"] = prompt, draw.randrange(1, 25)
        for name, (prompt, num_tokens) in asked.items():
            table.submit(name, prompt, num_tokens)
        table.run()
        assert all(table.tokens[name] == answer(prompt, count) for name, (prompt, count) in asked.items())
        assert device.num_free + device.num_cached == device.total == 32
        assert device.num_cached > 0
    assert sum(finished.preemptions for finished in table.finished.values()) > 0
    table.assert_empty()


def holdings(worker: Worker) -> list[object]:
    """All that an admission could take, of both tiers."""
    return [
        state
        for pool in (worker.device, worker.host)
        for state in (list(pool.refs), list(pool.free), list(pool.cached), dict(pool.fenced), pool.num_extra_refs)
    ] + [list(worker.free_slots), list(worker.running), list(worker.freed_slots)]


@pytest.mark.parametrize("lacking", ["a page", "a slot"])
def test_PG08_an_admission_that_lacks_one_thing_takes_none_of_the_others_a_thousand_times(lacking: str) -> None:
    """The page it lacks comes after a prefix that it would share. One page holds all of the running sequence."""
    page, slots = 1024, 1 if lacking == "a slot" else 8
    table = TableTop(w=PaperWorker(page_size=page, pages=3, host_pages=2, max_slots=slots, max_step_tokens=1100))
    head = [n % 900 for n in range(page + 1)]
    table.submit("head", head, 1)
    table.run()
    table.submit("runs", [1, 2], 1010)
    table.turn()
    more = [n % 7 for n in range(page if lacking == "a page" else 3)]
    table.submit("waits", head + more, 2)
    worker = worker_of(table)
    before = holdings(worker)
    for _ in range(1000):
        assert table.plan("w") or table.plan("w") or worker.in_flight
        assert holdings(worker) == before
        table.deliver("w")
    waiting = next(iter(table.core.waiting))
    assert (waiting.request.spec.id, waiting.table, waiting.slot) == ("waits", [], -1)
    table.run()
    assert table.tokens["waits"] == answer(head + more, 2)
    assert table.started["waits"].cached == page
    table.assert_empty()


def crowd(settings: Settings, **fields: int) -> TableTop:
    """Four sequences that fill a pool of eight pages and all need a third page in the very same step."""
    table = TableTop(settings, w=PaperWorker(**{"page_size": 4, "pages": 8, "host_pages": 16, **fields}))
    for number in range(4):
        table.submit(str(number), [100 * number + n for n in range(4)], 14)
    return table


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("mode", ["swap", "drop"])
def test_PG14_when_no_running_sequence_gets_a_page_victims_make_room_and_no_plan_is_empty(
    mode: str, depth: int
) -> None:
    table = crowd(Settings(preempt=mode, plans_in_flight=depth, max_reserve_share=0.0))  # type: ignore[arg-type]
    worker = worker_of(table)
    was_tight = False
    while table.core.requests:
        needy = [s for s in worker.running if s.planned == 4 * len(s.table)]
        was_tight |= len(needy) == len(worker.running) > 1 and not worker.device.num_available
        for plan in fill_pipe(table):
            assert plan.rows or plan.freed_slots or plan.swap_out or plan.swap_in
        assert worker.in_flight, "somebody can always go on"
        table.deliver("w")
    assert was_tight
    assert sum(finished.preemptions for finished in table.finished.values()) > 0
    table.run()
    assert table.tokens == {str(k): answer([100 * k + n for n in range(4)], 14) for k in range(4)}
    table.assert_empty()


@pytest.mark.parametrize("how", ["nack", "lost"])
def test_PG13_when_the_result_of_a_swap_never_comes_its_sequences_are_computed_again(how: str) -> None:
    paper = PaperWorker(page_size=4, pages=8, host_pages=16)
    table = crowd(Settings(preempt="swap"))
    table.join("w", paper)
    while not (table.plans and table.plans[-1].swap_out.source):
        assert table.plan("w") or table.deliver("w")
    table.results["w"].clear()
    if how == "nack":
        table.apply(Nack("w", worker_of(table).in_flight[0].step))
    else:
        table.join("w", paper)
    assert not worker_of(table).swapped
    assert len(table.core.waiting) == len(table.core.requests)
    table.run()
    assert table.tokens == {str(k): answer([100 * k + n for n in range(4)], 14) for k in range(4)}
    table.assert_empty()


@pytest.mark.parametrize("mode", ["swap", "drop"])
def test_PC09_what_waits_in_a_full_pool_owns_nothing(mode: str) -> None:
    table = crowd(Settings(preempt=mode), pages=7)  # type: ignore[arg-type]
    num_preempted = 0
    while table.turn():
        for sequence in table.core.waiting:
            assert (sequence.table, sequence.host_table, sequence.slot, sequence.worker) == ([], [], -1, None)
            num_preempted += sequence.num_generated > 0
        assert not any(sequence.table for sequence in worker_of(table).swapped)
    assert (num_preempted > 0) == (mode == "drop")
    table.assert_empty()


@pytest.mark.parametrize("host_pages", [0, 4])
def test_PC09_a_prompt_of_which_every_page_is_cached_is_served_from_a_pool_that_holds_nothing_else(
    host_pages: int,
) -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=4, host_pages=host_pages))
    prompt = list(range(16))
    for name in ("miss", "hit", "hit again"):
        table.submit(name, prompt, 1)
        table.run()
        assert table.tokens[name] == answer(prompt, 1)
        assert worker_of(table).device.num_free == 0
    assert [table.started[name].cached for name in ("miss", "hit", "hit again")] == [0, 12, 12]
    table.assert_empty()


def rows_of(plan: StepPlan, name: str) -> list[tuple[int, int]]:
    """Tokens and samples of the request's row in a plan."""
    rows = zip(plan.rows, plan.row_tokens, plan.row_samples, strict=True)
    return [(num_tokens, samples) for row, num_tokens, samples in rows if row.request.spec.id == name]


def test_PS06_after_a_preemption_exactly_what_is_known_and_not_found_is_computed_again() -> None:
    """The first sequence takes over more or fewer of the pages that the second one left behind before it ends."""
    seen = set()
    for pages in range(9, 19):
        for most in range(2 * pages - 4, 4 * pages - 5, 4):
            settings = Settings(preempt="drop", max_chunk=3, plans_in_flight=1)
            table = TableTop(settings, w=PaperWorker(page_size=4, pages=pages, host_pages=0))
            table.submit("a", A, most)
            table.submit("b", B, 30)
            missing = 0
            while fill_pipe(table):
                plan = worker_of(table).in_flight[-1]
                for new in plan.new_slots:
                    if new.sequence.request.preemptions:
                        missing = len(new.tokens) - new.num_computed
                        seen.add((new.sequence.num_generated, new.num_computed // 4))
                for num_tokens, samples in rows_of(plan, "b") if missing else ():
                    missing -= num_tokens
                    assert (missing == 0) == (samples == 1)
                table.deliver("w")
            assert table.tokens["b"] == answer(B, 30)
            table.assert_empty()
    assert len(seen) >= 50, "answers of many lengths, of which many numbers of pages were found"


@pytest.mark.parametrize(("mode", "host_pages", "again"), [("swap", 8, 0), ("drop", 8, 0), ("drop", 0, 16)])
def test_PS09_of_the_recipe_no_more_is_computed_again_than_was_taken_over(
    mode: str, host_pages: int, again: int
) -> None:
    """Page 16, two prompts of 34 tokens, 35 new ones each, seven pages; the second is preempted with three full ones."""
    worker = PaperWorker(page_size=16, pages=7, host_pages=host_pages)
    table = TableTop(Settings(preempt=mode), w=worker)  # type: ignore[arg-type]
    for name in "ab":
        table.submit(name, [ord(name)] * 34, 35)
    num_computed = 0
    while table.core.requests:
        num_computed += sum(sum(plan.row_tokens) for plan in fill_pipe(table))
        table.deliver("w")
    assert table.tokens == {name: answer([ord(name)] * 34, 35) for name in "ab"}
    assert table.finished["b"].preemptions == 1
    assert num_computed == 2 * (34 + 35 - 1) + again


class LateWriter(PaperWorker):
    """What a step writes is seen by copies to the host only once its result was taken, as if they ran on a stream of
    their own and waited for nothing else."""

    def reset(self) -> None:
        super().reset()
        self.memory = self.device.copy()
        self.unlanded: deque[tuple[int, int, np.ndarray]] = deque()

    def land(self, step: int) -> None:
        """The writes of this step have reached memory."""
        while self.unlanded and self.unlanded[0][0] <= step:
            _, page, content = self.unlanded.popleft()
            self.memory[page] = content

    def _move(self, moves: step_pb2.PageMoves, source: np.ndarray, target: np.ndarray) -> None:
        super()._move(moves, self.memory if target is self.host else source, target)
        for page in column(moves.target, "<i4") if target is self.device else ():
            if source is self.host:
                self.memory[page] = self.device[page]
            else:
                self.unlanded.append((self.step, page, self.device[page].copy()))

    def _row(self, slot: Slot, count: int, sample: int, forks: list[Slot]) -> list[int]:
        first = slot.computed // self.page_size
        tokens = super()._row(slot, count, sample, forks)
        for page in slot.table[first : -(-slot.computed // self.page_size)]:
            self.unlanded.append((self.step, page, self.device[page].copy()))
        return tokens


class LateTable(TableTop):
    """Writes land when the scheduler hears of them."""

    def deliver(self, name: str) -> bool:
        worker = self.workers[name]
        if self.results[name] and isinstance(worker, LateWriter):
            worker.land(self.results[name][0].step)
        return super().deliver(name)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("page_size", [1, 4])
def test_PS10_no_page_is_copied_to_the_host_before_the_step_that_wrote_it_is_done(page_size: int, n: int) -> None:
    """Pages swapped out and evicted ones that move down. A stale copy would be found when its sequence goes on."""
    num_moved = 0
    for pages in range(24 // page_size, 60 // page_size, 2):
        worker = LateWriter(page_size=page_size, pages=pages, host_pages=128 // page_size)
        table = LateTable(Settings(preempt="swap"), w=worker)
        for number in range(12):
            table.submit(str(number), [100 * (number % 9) + k for k in range(6)], 12, n=n, tenant=str(number % 2))
        table.run()
        for number in range(12):
            for branch in range(n):
                prompt = [100 * (number % 9) + k for k in range(6)]
                assert table.tokens[table.key(str(number), branch)] == answer(prompt, 12, 0, branch)
        table.assert_empty()
        assert table.num_pages_out > 0
        num_moved += table.num_pages_out + table.num_pages_in
    assert num_moved > 100


def test_PS10_a_copy_that_does_not_wait_for_the_writing_step_is_noticed() -> None:
    worker = LateWriter()
    table = LateTable(w=worker)
    table.submit("r", A, 4)
    table.plan("w")
    (page, *_) = table.core.requests["r"].sequences[0].table
    early = step_pb2.StepPlan(swap_out=step_pb2.PageMoves(source=page.to_bytes(4, "little"), target=b"\1\0\0\0"))
    worker.execute(step_pb2.StepPlan(step=2, swap_out=early.swap_out))
    assert list(worker.host[1]) != A[:4]
    table.deliver("w")
    worker.execute(step_pb2.StepPlan(step=3, swap_out=early.swap_out))
    assert list(worker.host[1]) == A[:4]
