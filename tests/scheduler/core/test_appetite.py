"""Steps that run out of memory: smaller ones are tried, then one request is given up, and nobody else is harmed."""

import pytest
from octavo.v1 import step_pb2
from octavo_scheduler.core import Settings
from octavo_scheduler.core.appetite import LEAST_PATIENCE, MOST_PATIENCE, Appetite
from octavo_scheduler.core.events import Nack
from octavo_scheduler.core.request import FinishReason

from tests.doubles.paper_worker import PaperWorker, answer, column
from tests.doubles.table_top import TableTop

GLUTTON = 666


class Cramped(PaperWorker):
    """Has memory for steps of so many tokens, and none for a slot that holds the glutton."""

    def __init__(self, *, most_tokens: int, **fields: int) -> None:
        super().__init__(**fields)
        self.most_tokens = most_tokens

    def has_memory_for(self, plan: step_pb2.StepPlan) -> bool:
        names = column(plan.rows.slot, "<u2")
        counts = column(plan.rows.num_tokens, "<i4") or [1] * len(names)
        return sum(counts) <= self.most_tokens and all(GLUTTON not in self.slots[name].tokens for name in names)


class CrampedTable(TableTop):
    """A step that there is no memory for is refused with what was computed of it; the worker waits for a full plan."""

    num_refused = 0

    def plan(self, name: str) -> bool:
        worker = self.workers[name]
        if not super().plan(name):
            return False
        if isinstance(worker, Cramped) and not worker.has_memory_for(self.plans[-1]):
            self.num_refused += 1
            self.results[name].pop()
            while self.deliver(name):
                pass
            worker.slots.clear()
            self.apply(Nack(name, self.plans[-1].step, is_memory=True))
        return True


def cramped(most_tokens: int) -> Cramped:
    return Cramped(most_tokens=most_tokens, pages=200, max_slots=16, max_step_tokens=512)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("most_tokens", [1, 5, 40, 300])
def test_EC06_where_memory_is_short_steps_get_smaller_and_every_request_is_answered(
    most_tokens: int, depth: int
) -> None:
    table = CrampedTable(Settings(plans_in_flight=depth), w=cramped(most_tokens))
    for n in range(12):
        table.submit(f"r{n}", [n] * 30, 12)
    for _ in range(4000):
        table.turn()
    table.assert_empty()
    assert table.num_refused > 0
    assert table.tokens == {f"r{n}": answer([n] * 30, 12) for n in range(12)}
    assert list(table.core.workers) == ["w"], "it is not sent away"


@pytest.mark.parametrize("depth", [1, 2])
def test_EC06_a_request_that_memory_is_too_small_for_ends_alone_and_the_steps_of_others_are_whole_again(
    depth: int,
) -> None:
    table = CrampedTable(Settings(plans_in_flight=depth), w=cramped(10_000))
    for n in range(6):
        table.submit(f"good{n}", [n, n + 1], 60)
    for _ in range(5):
        table.turn()
    table.submit("glutton", [GLUTTON] * 300, 12)
    for _ in range(300):
        table.turn()
    table.assert_empty()
    assert table.finished["glutton"].reason is FinishReason.NO_MEMORY
    assert table.tokens["glutton"] == []
    assert all(table.tokens[f"good{n}"] == answer([n, n + 1], 60) for n in range(6))
    worker = table.core.workers["w"]
    assert worker.budget == worker.appetite.most
    assert table.num_refused < 10


def test_a_request_that_one_worker_has_no_memory_for_goes_to_another() -> None:
    table = CrampedTable(small=cramped(100), large=PaperWorker(pages=64))
    table.submit("r", [GLUTTON] * 40, 4)
    for _ in range(40):
        table.turn()
    assert table.tokens["r"] == answer([GLUTTON] * 40, 4)
    assert sorted(table.core.workers) == ["large", "small"]


def test_a_step_gets_an_eighth_of_the_tokens_until_it_is_one() -> None:
    appetite = Appetite(512)
    for row_tokens, budget in (([512], 64), ([30, 34], 8), ([1, 1], 1)):
        assert (appetite.shrink(row_tokens), appetite.budget) == (True, budget)
    assert (appetite.shrink([1]), appetite.budget) == (False, 1)
    assert not Appetite(512).shrink([])


def test_the_budget_comes_back_by_doubling_the_slower_the_oftener_memory_ran_out() -> None:
    appetite = Appetite(512)

    def good_steps_until_whole() -> int:
        count = 0
        while appetite.budget < appetite.most:
            appetite.note_good()
            count += 1
        return count

    appetite.shrink([512])
    assert good_steps_until_whole() == 3 * 2 * LEAST_PATIENCE
    appetite.shrink([512])
    assert good_steps_until_whole() == 3 * 4 * LEAST_PATIENCE
    for _ in range(20):
        appetite.shrink([512])
    assert appetite.patience == MOST_PATIENCE
    assert appetite.budget == 64
    appetite.note_good()
    assert appetite.budget == 64
