"""Cancelling where it is inconvenient: beside an end, in the middle of a swap, before anything began, when workers die."""

import random
from collections import Counter

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Finished, Lost, Output, Refused, Tick
from octavo_scheduler.core.request import FinishReason, RequestSpec

from tests.doubles.paper_worker import PaperWorker, answer
from tests.doubles.table_top import TableTop

A, B = [7] * 34, [8] * 34


def swapping(**workers: PaperWorker) -> TableTop:
    """Two requests in a pool that soon is too small for both: the second one is swapped out and comes back later."""
    table = TableTop(Settings(preempt="swap", prefix_cache=False), **workers)
    table.submit("a", A, 35)
    table.submit("b", B, 35)
    return table


def small() -> PaperWorker:
    return PaperWorker(page_size=16, pages=7, host_pages=8)


def plan_until(table: TableTop, moves: str) -> None:
    """Up to the first plan that moves pages so, which is executed and whose result is not there yet."""
    for _ in range(1000):
        while table.plan("w"):
            if getattr(table.plans[-1], moves).source:
                return
        assert table.deliver("w")
    raise AssertionError("nothing is swapped")


@pytest.mark.parametrize("moves", ["swap_out", "swap_in"])
@pytest.mark.parametrize("first", ["abort", "result"])
def test_CA06_a_request_that_is_cancelled_with_its_swap_in_flight_ends_once_and_leaves_nothing(
    moves: str, first: str
) -> None:
    """The result of the swap comes for a request that is gone, or is the last thing it hears."""
    table = swapping(w=small())
    plan_until(table, moves)
    if first == "result":
        table.deliver("w")
    table.abort("b")
    table.deliver("w")
    table.abort("b")
    table.run()
    assert table.finished["b"].reason is FinishReason.CANCELLED
    assert table.tokens["a"] == answer(A, 35)
    table.assert_empty()


@pytest.mark.parametrize("order", ["abort", "stop"])
def test_CA06_of_a_stop_and_a_cancel_in_one_step_the_first_one_counts(order: str) -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=32))
    stop = answer([1, 2], 5)[4]
    table.submit("r", [1, 2], 20, stop_token_ids=frozenset({stop}))
    while len(table.tokens["r"]) < 4:
        table.turn()
    while table.plan("w"):
        pass
    if order == "abort":
        table.abort("r")
    while table.deliver("w"):
        pass
    table.abort("r")
    table.abort("r", at=3)
    expected = FinishReason.CANCELLED if order == "abort" else FinishReason.STOP
    assert table.finished["r"].reason is expected
    table.run()
    table.assert_empty()


class Ends(TableTop):
    """Counts the terminal events of each request."""

    def __init__(self, settings: Settings, **workers: PaperWorker) -> None:
        self.ends = Counter[str]()
        super().__init__(settings, **workers)

    def _note(self, outputs: list[Output]) -> None:
        super()._note(outputs)
        self.ends.update(output.request for output in outputs if isinstance(output, Finished | Refused))


@pytest.mark.parametrize("seed", range(20))
def test_CA10_whatever_ends_a_request_it_has_exactly_one_terminal_event(seed: int) -> None:
    """Ends of its own, stops, cancelling, deadlines, a full queue, and workers that die with it."""
    draw = random.Random(seed)
    table = Ends(Settings(max_queued_requests=12), w=PaperWorker(page_size=4, pages=24))
    names = [f"r{number}" for number in range(40)]
    for number, name in enumerate(names):
        table.now += 1.0
        deadline = table.now + draw.randrange(1, 9) if draw.random() < 0.3 else None
        stops = frozenset(draw.sample(range(900), draw.choice([0, 100])))
        table.submit(name, [number, 5], draw.randrange(1, 20), deadline=deadline, stop_token_ids=stops)
        for _ in range(draw.randrange(3)):
            table.turn()
        table.apply(Tick())
        if draw.random() < 0.2:
            table.abort(draw.choice(names[: number + 1]))
        if draw.random() < 0.1:
            table.kill("w")
            table.join("w", PaperWorker(page_size=4, pages=24))
        live = {name for name in names[: number + 1] if not table.ends[name]}
        assert live == set(table.core.requests), "who has no terminal event is alive, and nobody else"
    table.run()
    assert table.ends == Counter(names)
    counters = table.core.counters
    assert (counters.accepted + counters.refused, counters.ended) == (40, counters.accepted)
    table.assert_empty()


@pytest.mark.parametrize("moves", ["swap_out", "swap_in"])
def test_CA12_pages_of_a_swap_whose_worker_dies_before_it_is_done_are_held_by_nobody(moves: str) -> None:
    table = swapping(w=small())
    plan_until(table, moves)
    table.abort("b")
    lost = table.core.workers["w"]
    table.kill("w")
    assert (lost.device.num_held, lost.host.num_held) == (0, 0)
    table.join("w", small())
    again = table.core.workers["w"]
    assert again is not lost
    assert (again.device.num_free, again.host.num_free) == (7, 8)
    table.run()
    assert table.tokens["a"] == answer(A, 35)
    table.assert_empty()


def test_CA13_a_request_whose_prefix_was_looked_up_and_that_is_cancelled_before_it_starts_holds_no_page() -> None:
    """Its prompt is found in the cache again and again while it waits for room; looking takes no reference."""
    table = TableTop(w=PaperWorker(page_size=4, pages=12))
    table.submit("warm", list(range(12)), 1)
    table.run()
    table.submit("long", [99] * 30, 17)
    table.turn()
    table.submit("r", list(range(12)), 9)
    for _ in range(5):
        assert table.turn()
    assert "r" not in table.started
    refs = list(table.core.workers["w"].device.refs)
    table.abort("r")
    assert list(table.core.workers["w"].device.refs) == refs
    table.run()
    table.assert_empty()


def test_CA14_an_arrival_that_goes_first_takes_nothing_from_who_is_being_brought_back_and_leaves_no_copy_behind() -> (
    None
):
    """The queue is full and a request of a higher class comes while the pages of a lower one are on their way back."""
    table = swapping(w=small())
    plan_until(table, "swap_in")
    assert table.core.submit(RequestSpec(id="first", prompt=(5,) * 20, max_tokens=30, priority=9), table.now) == []
    table.tokens["first"] = []
    table.abort("b")
    table.run()
    assert table.tokens["first"] == answer([5] * 20, 30)
    assert table.tokens["a"] == answer(A, 35)
    table.assert_empty()


def test_CA12_nothing_is_told_of_a_request_that_ended_with_its_worker() -> None:
    table = swapping(w=small())
    plan_until(table, "swap_out")
    table.abort("b")
    assert table.core.apply(Lost("w"), table.now) == []
