"""What one step does, seen through plans and answers."""

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Drain, Tick
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import FinishReason
from octavo_scheduler.core.states import SequenceState

from tests.doubles.paper_worker import PaperWorker, answer
from tests.doubles.table_top import TableTop


def one_worker(settings: Settings | None = None, **fields: int) -> TableTop:
    return TableTop(settings, w=PaperWorker(**fields))


def last_plan(table: TableTop) -> StepPlan:
    return table.core.workers["w"].in_flight[-1]


@pytest.mark.parametrize("chunk", [1, 7, 16, 17, 32])
@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33])
def test_CP01_any_prompt_length_and_chunk_size_give_the_same_answer(length: int, chunk: int) -> None:
    table = one_worker(Settings(max_chunk=chunk), page_size=16, pages=8)
    prompt = list(range(length))
    table.submit("r", prompt, 5)
    table.run()
    assert table.tokens["r"] == answer(prompt, 5)


def test_CP02_the_running_set_never_exceeds_the_slots() -> None:
    table = one_worker(max_slots=2, pages=64)
    for name in "abc":
        table.submit(name, [1, 2, 3], 6)
    while table.turn():
        assert len(table.core.workers["w"].running) <= 2
    assert set(table.finished) == set("abc")


def test_CP05_the_budget_is_filled_with_the_head_of_the_next_prompt() -> None:
    table = one_worker(Settings(max_step_tokens=16), pages=64)
    table.submit("a", list(range(4)))
    table.submit("b", list(range(40)))
    table.plan("w")
    assert last_plan(table).row_tokens == [4, 12]


@pytest.mark.parametrize("priority", [0, 1])
def test_a_long_prompt_never_holds_up_a_stream(priority: int) -> None:
    table = one_worker(Settings(max_step_tokens=16), pages=128)
    table.submit("stream", [1], 12)
    table.turn()
    table.submit("long", list(range(200)), 1, priority=priority)
    for _ in range(5):
        before = len(table.tokens["stream"])
        table.turn()
        assert len(table.tokens["stream"]) == before + 1
    assert not table.tokens["long"]
    table.run()
    assert set(table.finished) == {"stream", "long"}


def test_a_steady_decode_step_carries_no_prompt_and_no_table() -> None:
    table = one_worker(page_size=16, pages=64)
    for n in range(8):
        table.submit(f"r{n}", list(range(20)), 30)
    for _ in range(4):
        table.turn()
    plan = last_plan(table)
    assert not plan.new_slots
    assert not plan.growth
    assert plan.row_tokens == [1] * 8
    assert table.plans[-1].ByteSize() < 8 * 2 + 16


def test_pages_are_taken_as_tokens_are_computed() -> None:
    table = one_worker(Settings(max_chunk=4), page_size=4, pages=64)
    table.submit("r", list(range(20)), 4)
    for step in range(1, 6):
        table.plan("w")
        assert table.core.workers["w"].device.num_held == step
        table.deliver("w")


def test_the_next_step_is_planned_while_one_runs() -> None:
    table = one_worker()
    table.submit("r", [1, 2, 3], 8)
    assert table.plan("w")
    assert table.plan("w")
    assert not table.plan("w"), "at most two plans are in flight"
    assert last_plan(table).row_tokens == [1], "the token to be sampled is known to exist"
    table.run()
    assert table.tokens["r"] == answer([1, 2, 3], 8)


def test_no_row_is_planned_past_the_last_token() -> None:
    table = one_worker()
    table.submit("r", [1, 2, 3], 1)
    assert table.plan("w")
    assert not table.plan("w")


def test_a_stop_token_ends_the_answer_and_the_token_computed_meanwhile_is_discarded() -> None:
    prompt = [5, 6, 7]
    expected = answer(prompt, 10)
    table = one_worker()
    table.submit("r", prompt, 10, stop_token_ids=frozenset({expected[3]}))
    table.run()
    assert table.tokens["r"] == expected[:4]
    assert table.finished["r"].reason is FinishReason.STOP
    assert table.finished["r"].stop_token == expected[3]
    assert table.core.counters.generated_tokens == 4
    table.assert_empty()


def test_a_stop_at_a_position_counts_no_token_past_it() -> None:
    table = one_worker()
    table.submit("r", [1, 2], 20)
    for _ in range(6):
        table.turn()
    table.abort("r", at=2)
    table.run()
    assert table.finished["r"].reason is FinishReason.STOP
    assert table.finished["r"].num_tokens == 2
    table.assert_empty()


def test_CA08_of_many_cancelled_at_once_nothing_is_held_and_all_is_free_after_two_results() -> None:
    table = one_worker(pages=64)
    for n in range(8):
        table.submit(f"r{n}", list(range(n, n + 10)), 30)
    for _ in range(5):
        table.turn()
    while table.plan("w"):
        pass
    worker = table.core.workers["w"]
    for n in range(8):
        table.abort(f"r{n}")
    assert worker.device.num_held == 0
    assert worker.device.num_fenced > 0
    table.deliver("w")
    table.deliver("w")
    assert worker.device.num_available == worker.device.total
    table.submit("next", [1, 2], 3)
    table.run()
    assert table.tokens["next"] == answer([1, 2], 3)


@pytest.mark.parametrize("state", ["waiting", "chunk", "running", "swapped", "ended", "unknown"])
def test_CA04_CA05_CA09_abort_is_legal_in_every_state_and_twice(state: str) -> None:
    table = TableTop(Settings(preempt="swap", max_chunk=2), w=PaperWorker(page_size=1, pages=24, host_pages=24))
    name = {"swapped": "b", "unknown": "x"}.get(state, "a")
    for name_, prompt in (("a", list(range(9))), ("b", list(range(7)))):
        table.submit(name_, prompt, 12)
    turns = {"waiting": 0, "chunk": 1, "running": 6, "ended": 100, "unknown": 3, "swapped": 0}[state]
    for _ in range(turns):
        table.turn()
    while state == "swapped" and not table.core.workers["w"].swapped:
        assert table.turn()
    table.abort(name)
    table.abort(name)
    table.run()
    table.assert_empty()
    assert set(table.finished) == {"a", "b"}


def test_RI01_a_live_id_is_not_taken_twice() -> None:
    table = one_worker()
    table.submit("r", [1])
    with pytest.raises(ValueError, match="live already"):
        table.submit("r", [1])


def test_a_request_that_no_pool_could_hold_is_refused_with_the_numbers() -> None:
    table = one_worker(page_size=4, pages=7)
    table.submit("fits", list(range(20)), 9)
    table.submit("r", list(range(20)), 10)
    assert "need 8 pages of 4 tokens; the largest pool has 7" in table.refused["r"].message
    assert set(table.refused) == {"r"}
    table.run()
    assert table.tokens["fits"] == answer(list(range(20)), 9)


def test_a_request_that_waited_for_a_worker_is_refused_when_the_worker_cannot_hold_it() -> None:
    table = TableTop()
    table.submit("r", list(range(40)), 10)
    table.join("w", PaperWorker(page_size=4, pages=7))
    assert "r" in table.refused
    assert not table.core.requests


def test_without_max_tokens_an_answer_ends_where_the_pool_ends() -> None:
    table = one_worker(page_size=4, pages=4)
    table.submit("r", [1, 2, 3], None)
    table.run()
    assert len(table.tokens["r"]) == 4 * 4 + 1 - 3
    assert table.finished["r"].reason is FinishReason.LENGTH


def test_a_full_queue_refuses() -> None:
    table = TableTop(Settings(max_queued_requests=2))
    for name in "abc":
        table.submit(name, [1])
    assert table.refused["c"].reason == "QUEUE_FULL"


def test_a_deadline_is_kept_whether_waiting_or_running() -> None:
    table = one_worker(max_slots=1)
    table.submit("runs", [1], 20, deadline=5.0)
    table.submit("waits", [1], 20, deadline=4.0)
    table.turn()
    table.now = 5.0
    assert table.core.next_deadline == 4.0
    table.apply(Tick())
    assert {end.reason for end in table.finished.values()} == {FinishReason.DEADLINE}
    table.run()
    table.assert_empty()


def test_of_workers_that_are_alike_the_one_with_most_room_is_first_and_then_each_has_its_turn() -> None:
    table = TableTop(big=PaperWorker(pages=64), small=PaperWorker(pages=16))
    for n in range(4):
        table.submit(f"r{n}", [n] * 8, 4)
    table.plan("small")
    assert not table.core.workers["small"].running
    table.plan("big")
    assert len(table.core.workers["big"].running) == 1
    table.plan("small")
    table.plan("big")
    table.plan("small")
    assert {name: len(worker.running) for name, worker in table.core.workers.items()} == {"big": 2, "small": 2}
    table.run()
    assert len(table.finished) == 4


def test_workers_of_different_page_size_serve_side_by_side() -> None:
    table = TableTop(a=PaperWorker(page_size=2, pages=40), b=PaperWorker(page_size=8, pages=10))
    for n in range(12):
        table.submit(f"r{n}", list(range(9)), 12)
    table.turn()
    assert all(worker.running for worker in table.core.workers.values())
    table.run()
    assert all(table.tokens[f"r{n}"] == answer(list(range(9)), 12) for n in range(12))


def test_a_draining_worker_ends_what_it_has_and_takes_nothing_new() -> None:
    table = TableTop(Settings(preempt="swap"), w=PaperWorker(page_size=2, pages=12, host_pages=12))
    for n in range(3):
        table.submit(f"r{n}", list(range(4)), 14)
    while not table.core.workers["w"].swapped:
        table.turn()
    table.apply(Drain("w"))
    table.submit("late", [1], 2)
    table.run()
    assert set(table.finished) == {"r0", "r1", "r2"}
    assert [s.state for s in table.core.waiting] == [SequenceState.WAITING]


def test_higher_priority_is_admitted_first() -> None:
    table = one_worker(max_slots=1)
    table.submit("low", [1], 2)
    table.submit("high", [2], 2, priority=5)
    table.plan("w")
    assert [s.request.spec.id for s in table.core.workers["w"].running] == ["high"]


def test_what_does_not_fit_is_passed_over_a_bounded_number_of_times() -> None:
    table = TableTop(Settings(max_overtakes=3, max_step_tokens=64), w=PaperWorker(page_size=4, pages=10, max_slots=4))
    table.submit("first", list(range(12)), 12)
    table.turn()
    table.submit("large", list(range(32)), 4)
    for n in range(20):
        table.submit(f"small{n}", [n], 2)
    before = 0
    while "large" not in table.finished:
        assert table.turn()
        before = sum(f"small{n}" in table.finished for n in range(20))
    assert 3 <= before < 20
    table.run()
    assert len(table.finished) == 22
