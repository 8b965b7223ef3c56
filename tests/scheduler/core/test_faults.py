"""Failed steps and lost workers: who is blamed, who goes on, who is given up."""

import pytest
from octavo.v1 import step_pb2
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import NO_TOKEN, Lost, Nack, Rates, StepDone
from octavo_scheduler.core.preempt import prefers_swap
from octavo_scheduler.core.request import FinishReason

from tests.doubles.paper_worker import PaperWorker, Slot, answer
from tests.doubles.table_top import TableTop

POISON = 666


class Allergic(PaperWorker):
    """Cannot compute a step in which a row's slot has the poison in its prompt (or any row at all)."""

    def __init__(self, *, always: bool = False, **fields: int) -> None:
        super().__init__(**fields)
        self.always = always

    def is_ill_of(self, plan: step_pb2.StepPlan) -> bool:
        slots = [self.slots[int(slot)] for slot in memoryview(plan.rows.slot).cast("H")]
        return (self.always and bool(slots)) or any(POISON in slot.tokens for slot in slots)


class AllergicTable(TableTop):
    """Where an allergic worker meets poison it refuses the step (or dies, with `dies`), and waits for a full plan."""

    dies = False

    def plan(self, name: str) -> bool:
        worker = self.workers[name]
        core_worker = self.core.workers[name]
        if not super().plan(name):
            return False
        if isinstance(worker, Allergic) and worker.is_ill_of(self.plans[-1]):
            self.results[name].pop()
            while self.deliver(name):
                pass  # what the worker had sent before still arrives
            if self.dies:
                self.kill(name)
                self.join(name + "'", worker)
                return False
            self.apply(Nack(name, self.plans[-1].step))
            if core_worker is not self.core.workers.get(name):
                del self.workers[name], self.results[name]
                return False
        return True


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_poisonous_request_is_given_up_and_its_neighbours_get_their_answers(dies: bool, depth: int) -> None:
    table = AllergicTable(Settings(plans_in_flight=depth), w=Allergic(pages=64))
    table.dies = dies
    for n in range(5):
        table.submit(f"good{n}", [n, n + 1], 12)
    table.submit("poison", [1, POISON], 12)
    for _ in range(200):
        table.turn()
    table.assert_empty()
    assert table.finished["poison"].reason is FinishReason.FAILED
    assert {f"good{n}": answer([n, n + 1], 12) for n in range(5)}.items() <= table.tokens.items()
    assert all(table.finished[f"good{n}"].reason is FinishReason.LENGTH for n in range(5))


def test_a_worker_that_fails_every_step_is_sent_away_and_no_request_ends_for_it() -> None:
    table = AllergicTable(broken=Allergic(always=True, pages=200), sound=PaperWorker(pages=64))
    for n in range(40):
        table.submit(f"r{n}", [n, n + 1], 10)
    for _ in range(400):
        table.turn()
    assert all(table.tokens[f"r{n}"] == answer([n, n + 1], 10) for n in range(40))
    assert list(table.core.workers) == ["sound"]


def test_EC12_one_broken_worker_alone_is_sent_away_and_plans_without_rows_are_no_excuse() -> None:
    table = AllergicTable(broken=Allergic(always=True))
    table.submit("first", [1], 4)
    table.submit("second", [2], 4)
    for _ in range(50):
        table.turn()
    assert not table.core.workers
    assert sum(len(plan.rows.slot) > 0 for plan in table.plans) == table.core.settings.max_nacks
    assert list(table.core.requests) == ["second"], "it waits for a worker that is well"


def test_faults_are_forgiven_with_the_next_token() -> None:
    table = TableTop(Settings(max_faults=2), w=PaperWorker(pages=64))
    table.submit("r", [1, 2], 30)
    for _ in range(5):
        for _ in range(3):
            table.turn()
        table.plan("w")
        step = table.results["w"][0].step
        table.results["w"].clear()
        table.apply(Nack("w", step))
    table.run()
    assert table.tokens["r"] == answer([1, 2], 30)


def test_only_the_refused_plan_is_blamed() -> None:
    table = TableTop(w=PaperWorker(pages=64, max_step_tokens=8))
    table.submit("first", list(range(8)), 4)
    table.submit("second", list(range(8)), 4)
    assert table.plan("w")
    assert table.plan("w")
    first, second = (table.core.requests[name].sequences[0] for name in ("first", "second"))
    rows = [set(plan.rows) for plan in table.core.workers["w"].in_flight]
    assert rows == [{first}, {first, second}], "so blaming the wrong plan would show"
    blamed = list(table.core.workers["w"].in_flight[1].rows)
    table.results["w"].clear()
    table.apply(Nack("w", table.core.workers["w"].in_flight[1].step))
    assert {s for s in (first, second) if s.faults} == set(blamed)
    table.run()
    assert table.tokens == {name: answer(list(range(8)), 4) for name in ("first", "second")}


def test_a_worker_that_leaves_in_order_blames_nobody() -> None:
    table = TableTop(w=PaperWorker(pages=64))
    table.submit("r", [1, 2], 30)
    table.turn()
    (sequence,) = table.core.requests["r"].sequences
    table.apply(Lost("w", is_crash=False))
    assert sequence.faults == 0


@pytest.mark.parametrize("tokens", [(), (1, 2), (900,), (-2,)])
def test_a_result_with_wrong_tokens_commits_nothing_and_is_treated_as_a_failed_step(tokens: tuple[int, ...]) -> None:
    table = TableTop(w=PaperWorker(pages=64))
    table.submit("r", [1, 2], 10)
    table.plan("w")
    table.results["w"].clear()
    table.apply(StepDone("w", 1, tokens))
    assert table.tokens["r"] == []
    table.run()
    assert table.tokens["r"] == answer([1, 2], 10)
    assert any(plan.full for plan in table.plans)


@pytest.mark.parametrize("event", [StepDone("w", 7, ()), StepDone("x", 1, ()), Nack("w", 0), Nack("x", 1), Lost("x")])
def test_stale_events_change_nothing(event: StepDone | Nack | Lost) -> None:
    table = TableTop(w=PaperWorker(pages=64))
    table.submit("r", [1, 2], 10)
    table.plan("w")
    before = len(table.core.workers["w"].in_flight)
    table.apply(event)
    assert len(table.core.workers["w"].in_flight) == before
    table.run()
    assert table.tokens["r"] == answer([1, 2], 10)


def test_requests_that_only_other_workers_can_hold_do_not_hide_those_behind_them() -> None:
    table = TableTop(big=PaperWorker(page_size=4, pages=200), small=PaperWorker(page_size=4, pages=8))
    for n in range(100):
        table.submit(f"big{n}", list(range(40)), 4)
    table.kill("big")
    table.submit("small", [1, 2], 2)
    for _ in range(4):
        table.turn()
    assert table.tokens["small"] == answer([1, 2], 2)


def test_an_open_ended_answer_may_go_on_at_a_smaller_worker() -> None:
    table = TableTop(big=PaperWorker(page_size=4, pages=200))
    table.submit("r", [1, 2, 3], None)
    for _ in range(4):
        table.turn()
    table.kill("big")
    table.join("small", PaperWorker(page_size=4, pages=8))
    table.run()
    assert table.tokens["r"] == answer([1, 2, 3], 8 * 4 + 1 - 3)


def test_a_page_that_must_be_zeroed_is_named_once_when_it_is_taken() -> None:
    class Zeroing(PaperWorker):
        def hello(self, worker_id: str = "paper", digest: bytes = b"paper") -> step_pb2.Hello:
            hello = super().hello(worker_id, digest)
            hello.needs_zeroed_pages = True
            return hello

    table = TableTop(Settings(preempt="swap", prefix_cache=False), w=Zeroing(page_size=16, pages=7, host_pages=8))
    for name in "ab":
        table.submit(name, [ord(name)] * 34, 35)
    table.run()
    assert table.num_pages_in > 0
    for plan in table.plans:
        zeroed = set(memoryview(plan.zero).cast("i"))
        swapped_in = set(memoryview(plan.swap_in.target).cast("i"))
        grown = set(memoryview(plan.growth.pages).cast("i"))
        assert zeroed == grown - swapped_in, "fresh pages are zeroed, pages that were copied in are not"


def test_a_sequence_never_grows_past_the_context() -> None:
    class Short(PaperWorker):
        def hello(self, worker_id: str = "paper", digest: bytes = b"paper") -> step_pb2.Hello:
            hello = super().hello(worker_id, digest)
            hello.max_context = 10
            return hello

    table = TableTop(w=Short(pages=64))
    table.submit("open", [1, 2, 3], None)
    table.submit("long", [1, 2, 3], 8)
    table.run()
    assert len(table.tokens["open"]) == 7
    assert "long" in table.refused


def test_admission_leaves_each_running_sequence_a_page_to_grow_into() -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=6))
    table.submit("a", list(range(8)), 8)
    table.turn()
    table.submit("fits", list(range(100, 108)), 1)
    table.turn()
    assert len(table.core.workers["w"].running) + len(table.finished) == 2
    table = TableTop(w=PaperWorker(page_size=4, pages=6))
    table.submit("a", list(range(8)), 8)
    table.turn()
    table.submit("does not", list(range(100, 112)), 1)
    table.plan("w")
    assert [s.request.spec.id for s in table.core.workers["w"].running] == ["a"]


def test_nothing_is_admitted_in_a_plan_that_had_to_preempt() -> None:
    table = TableTop(Settings(preempt="drop"), w=PaperWorker(page_size=16, pages=7, host_pages=0))
    for name in "ab":
        table.submit(name, [ord(name)] * 34, 35)
    while table.core.workers["w"].num_drops == 0:
        table.plan("w") or table.deliver("w")
    assert [s.request.spec.id for s in table.core.waiting] == ["b"]
    assert not table.plans[-1].new_slots.slot


def test_automatic_preemption_counts_both_directions_of_a_swap() -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=16, host_pages=16))
    table.submit("r", list(range(20)), 8)
    table.turn()
    victim = table.core.workers["w"].running[0]
    pages, page_bytes = len(victim.table), 1024
    seconds = 2 * pages * page_bytes / 1e6
    for factor, swaps in ((0.9, True), (1.1, False)):
        table.apply(Rates("w", 1e6, victim.computed / seconds * factor))
        assert prefers_swap(table.core.workers["w"], victim) is swaps


def test_the_time_in_the_queue_is_from_arrival_to_the_first_plan() -> None:
    table = TableTop()
    table.now = 10.0
    table.submit("r", [1, 2], 3)
    table.now = 14.5
    table.join("w", PaperWorker())
    table.plan("w")
    table.now = 20.0
    table.deliver("w")
    assert table.started["r"].queued == 4.5


def test_ended_requests_leave_no_deadline_behind() -> None:
    table = TableTop(w=PaperWorker(pages=64))
    for n in range(1000):
        table.submit(f"r{n}", [1], 1, deadline=1e6)
        table.abort(f"r{n}")
    assert len(table.core.registry._deadlines) <= 64


class Overflowing(PaperWorker):
    """Has no token for a slot that has the poison in its history."""

    def _row(self, slot: Slot, count: int, sample: int, forks: list[Slot]) -> list[int]:
        tokens = super()._row(slot, count, sample, forks)
        return [NO_TOKEN] * len(tokens) if POISON in slot.tokens[: slot.computed] else tokens


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("depth", [1, 2])
def test_NU01_a_request_whose_logits_are_no_numbers_ends_alone_and_commits_no_token(depth: int, n: int) -> None:
    table = TableTop(Settings(plans_in_flight=depth), w=Overflowing(pages=64))
    for number in range(5):
        table.submit(f"good{number}", [number, number + 1], 12)
    table.submit("bad", [1, 2, 3, 4, POISON, 5], 12, n=n)
    for _ in range(60):
        table.turn()
    table.assert_empty()
    assert table.finished["bad"].reason is FinishReason.NO_NUMBERS
    assert table.tokens["bad"] == []
    assert all(table.tokens[f"good{number}"] == answer([number, number + 1], 12) for number in range(5))
    assert list(table.core.workers) == ["w"]
    assert table.core.workers["w"].num_nacks == 0
    assert table.core.counters.generated_tokens == 5 * 12


def test_NU01_after_tokens_that_were_numbers_the_answer_ends_where_they_do() -> None:
    prompt = next([a, b] for a in range(50) for b in range(50) if POISON in answer([a, b], 8)[3:])
    table = TableTop(w=Overflowing(pages=64))
    table.submit("late", prompt, 40)
    for _ in range(60):
        table.turn()
    table.assert_empty()
    said = answer(prompt, 8)
    assert table.tokens["late"] == said[: said.index(POISON) + 1]
    assert table.finished["late"].reason is FinishReason.NO_NUMBERS
    assert table.finished["late"].num_tokens == len(table.tokens["late"])


def test_NU01_pages_that_may_be_why_are_found_by_nobody_and_other_prefixes_still_are() -> None:
    table = TableTop(w=Overflowing(pages=64, page_size=4))
    for name, prompt in (("good", [9] * 9), ("same", [1] * 9), ("bad", [1] * 8 + [POISON])):
        table.submit(name, prompt, 2)
        for _ in range(20):
            table.turn()
    table.submit("good again", [9] * 9, 2)
    table.submit("again", [1] * 9, 2)
    for _ in range(20):
        table.turn()
    assert table.started["good again"].cached == 8
    assert table.started["again"].cached == 0
    assert table.tokens["again"] == answer([1] * 9, 2)
    table.assert_empty()


class HalfOverflowing(PaperWorker):
    """Has no token for the last of several branches that a row is the first of."""

    def _row(self, slot: Slot, count: int, sample: int, forks: list[Slot]) -> list[int]:
        tokens = super()._row(slot, count, sample, forks)
        return [*tokens[:-1], NO_TOKEN] if forks else tokens


def test_NU01_pages_that_another_branch_made_known_are_found_by_nobody_either() -> None:
    table = TableTop(w=HalfOverflowing(pages=64, page_size=4))
    for name, prompt, n in (("bad", [1] * 8, 2), ("its head", [1] * 5, 1), ("again", [1] * 9, 1)):
        table.submit(name, prompt, 2, n=n)
        for _ in range(20):
            table.turn()
    assert table.finished["bad"].reason is FinishReason.NO_NUMBERS
    assert table.started["its head"].cached == 0
    assert table.started["again"].cached == 4
    assert table.tokens["again"] == answer([1] * 9, 2)
    table.assert_empty()
