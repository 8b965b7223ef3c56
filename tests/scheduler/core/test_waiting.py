"""What waits: how long at most, how much of it, until when."""

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Tick
from octavo_scheduler.core.pace import LONGEST_WAIT, PERIOD, Pace
from octavo_scheduler.core.request import FinishReason
from octavo_scheduler.core.waiting import RAISE_EVERY

from tests.doubles.paper_worker import PaperWorker
from tests.doubles.table_top import TableTop
from tests.doubles.watched_table import WatchedTable


def admissions_before(table: WatchedTable, name: str, most_turns: int, answers: tuple[int, ...] = (2,)) -> int | None:
    """Admissions under an endless flood of a higher class before `name` is admitted, counted from when it is old enough."""
    before = None
    for _ in range(most_turns):
        table.now += 1.0
        if before is None and table.now > table.core.settings.max_wait_seconds:
            before = len(table.admitted)
        if table.num_queued("high") < 8:
            for number in range(8):
                table.flood("high", 1, prompt=4, answer=answers[number % len(answers)], priority=9)
        table.turn()
        if name in table.admitted:
            return table.admitted.index(name) - (before or 0)
    return None


def test_under_an_endless_flood_of_a_higher_class_every_request_starts_within_the_bound() -> None:
    table = WatchedTable(Settings(max_wait_seconds=20.0))
    num_low = 5
    for number in range(num_low):
        table.submit(f"low{number}", [number, 1, 2], 4)
    last = admissions_before(table, f"low{num_low - 1}", 500)
    assert last is not None
    assert 0 < last <= num_low * RAISE_EVERY


def test_without_ageing_it_would_not_start() -> None:
    table = WatchedTable(Settings(max_wait_seconds=1e9))
    table.submit("low", [1, 2, 3], 4)
    assert admissions_before(table, "low", 200) is None


def test_a_large_request_of_a_low_class_starts_within_the_bound_though_it_does_not_fit_at_first() -> None:
    settings = Settings(max_wait_seconds=20.0, max_overtakes=4)
    table = WatchedTable(settings, pages=16)
    table.submit("low", [7] * 56, 4)
    before = admissions_before(table, "low", 500, answers=(3, 9, 5, 13))
    assert before is not None
    assert 0 < before <= RAISE_EVERY + settings.max_overtakes


def test_what_lies_swapped_out_comes_back_within_the_bound_too() -> None:
    table = WatchedTable(Settings(max_wait_seconds=20.0, preempt="swap"), pages=12, host_pages=16)
    table.submit("low", [7] * 20, 12)
    table.turn()
    table.submit("urgent", [8] * 20, 20, priority=9)
    while not table.core.workers["w"].swapped:
        assert table.turn()
    table.admitted.clear()
    before = admissions_before(table, "low", 500)
    assert before is not None
    assert before <= RAISE_EVERY + table.core.settings.max_overtakes


def test_requests_above_a_cap_are_refused_with_the_numbers() -> None:
    settings = Settings(
        max_queued_requests=4, max_queued_tokens=40, max_tenant_queued_requests=2, max_tenant_queued_tokens=20
    )
    table = TableTop(settings)
    table.submit("a0", [1] * 12, tenant="a")
    table.submit("a1", [1] * 9, tenant="a")
    assert table.refused["a1"].message == (
        "12 prompt tokens of this tenant are waiting already; 9 more would be above the limit of 20"
    )
    table.submit("a2", [1] * 8, tenant="a")
    table.submit("a3", [1], tenant="a")
    assert table.refused["a3"].message == "2 requests of this tenant are waiting already, which is the limit"
    table.submit("b0", [1] * 15, tenant="b")
    table.submit("c0", [1] * 6, tenant="c")
    assert "35 prompt tokens are waiting already" in table.refused["c0"].message
    table.submit("c1", [1], tenant="c")
    table.submit("d0", [1], tenant="d")
    assert table.refused["d0"].message == "4 requests are waiting already, which is the limit"
    assert {refused.reason for refused in table.refused.values()} == {"QUEUE_FULL"}
    assert set(table.refused) == {"a1", "a3", "c0", "d0"}


def test_an_empty_queue_takes_a_request_longer_than_the_cap() -> None:
    table = TableTop(Settings(max_queued_tokens=10))
    table.submit("long", [1] * 100)
    table.submit("next", [1])
    assert set(table.refused) == {"next"}


def test_what_has_started_is_not_queued_any_more() -> None:
    table = WatchedTable(Settings(max_queued_requests=2))
    for number in range(4):
        table.submit(f"r{number}", [number], 4)
        table.turn()
    assert not table.refused
    table.run()
    table.assert_empty()


def test_a_refused_client_is_told_how_long_the_queue_will_take() -> None:
    pace = Pace()
    for second in range(5):
        pace.note(200, float(second))
    assert pace.seconds(1000, 4.0) == pytest.approx(5.0)
    assert pace.seconds(0, 4.0) > 0
    assert Pace().seconds(1000, 4.0) == PERIOD, "nothing is known yet"


def test_a_queue_that_has_come_to_rest_takes_longer_and_longer() -> None:
    pace = Pace()
    pace.note(200, 0.0)
    pace.note(200, 1.0)
    waits = [pace.seconds(100, now) for now in (1.0, 4.0, 8.0, 16.0, 32.0)]
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0]


def test_refusals_carry_the_wait() -> None:
    table = WatchedTable(Settings(max_queued_requests=2), slots=1)
    for second in range(40):
        table.now = float(second)
        table.flood("a", 2, prompt=10, answer=2)
        table.turn()
        table.turn()
    refused = next(reversed(table.refused.values()))
    assert refused.retry_after is not None
    assert 0 < refused.retry_after < LONGEST_WAIT


def test_a_queue_deadline_ends_what_has_not_started_by_then_and_nothing_else() -> None:
    table = TableTop(w=PaperWorker(max_slots=1))
    table.submit("starts", [1], 20, queue_deadline=4.0)
    table.submit("waits", [2], 20, queue_deadline=5.0)
    table.turn()
    assert table.core.next_deadline == 4.0
    table.now = 4.5
    table.apply(Tick())
    assert not table.finished
    table.now = 5.0
    table.apply(Tick())
    assert set(table.finished) == {"waits"}
    assert table.finished["waits"].reason is FinishReason.DEADLINE
    table.run()
    assert table.finished["starts"].reason is FinishReason.LENGTH
    table.assert_empty()


def test_a_total_deadline_holds_beside_a_later_queue_deadline() -> None:
    table = TableTop()
    table.submit("r", [1], 20, deadline=3.0, queue_deadline=9.0)
    table.now = 3.0
    table.apply(Tick())
    assert table.finished["r"].reason is FinishReason.DEADLINE


def test_who_went_first_for_its_age_and_was_preempted_lets_the_others_go_first_once() -> None:
    table = TableTop(Settings(max_wait_seconds=0.0), w=PaperWorker())
    for name in ("old", "young"):
        table.submit(name, [1, 2], 4)
    old, young = (table.core.requests[name].sequences[0] for name in ("old", "young"))
    waiting, worker = table.core.waiting, table.core.workers["w"]
    waiting.discard(old)
    worker.swapped.add(old)
    waiting._num_since_raised = RAISE_EVERY
    assert waiting.oldest(worker, 1.0) is old
    waiting.admitted(old, 1.0, is_raised=True)
    waiting._num_since_raised = RAISE_EVERY
    assert waiting.oldest(worker, 1.0) is young
