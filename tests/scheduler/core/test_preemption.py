"""Preemption by drop and by swap, by the recipe that guarantees it, and at every position."""

from typing import Literal

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Rates
from octavo_scheduler.core.preempt import prefers_swap

from tests.doubles.paper_worker import PaperWorker, answer
from tests.doubles.table_top import TableTop

Mode = Literal["swap", "drop"]

B = list(range(500, 510))
"""The second sequence's prompt; it shares no prefix with the first one's."""


def recipe(mode: Mode, pages: int = 7, depth: int = 2, host_pages: int = 8, cache: bool = True) -> TableTop:
    worker = PaperWorker(page_size=16, pages=pages, host_pages=host_pages)
    table = TableTop(Settings(preempt=mode, plans_in_flight=depth, prefix_cache=cache), w=worker)
    for name in "ab":
        table.submit(name, prompt(name), 35)
    return table


def prompt(name: str) -> list[int]:
    return [ord(name)] * 34


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("mode", ["swap", "drop"])
def test_PS01_PS09_the_recipe_preempts_and_both_answers_are_right(mode: Mode, depth: int) -> None:
    table = recipe(mode, depth=depth)
    table.run()
    assert table.tokens == {name: answer(prompt(name), 35) for name in "ab"}
    worker = table.core.workers["w"]
    assert (worker.num_swaps, worker.num_drops) == ((1, 0) if mode == "swap" else (0, 1))
    assert table.finished["b"].preemptions == 1
    table.assert_empty()


def test_PS09_with_pages_for_both_nothing_is_preempted() -> None:
    table = recipe("swap", pages=10)
    table.run()
    assert table.core.workers["w"].num_swaps == 0


def test_the_first_in_order_is_never_the_victim() -> None:
    table = recipe("drop")
    table.run()
    assert table.finished["a"].preemptions == 0


def test_PG13_without_room_on_the_host_tier_a_swap_becomes_a_drop() -> None:
    table = recipe("swap", host_pages=2)
    table.run()
    assert (table.core.workers["w"].num_swaps, table.core.workers["w"].num_drops) == (0, 1)
    assert table.tokens["b"] == answer(prompt("b"), 35)


def test_a_swapped_sequence_holds_no_device_page_and_every_page_moves_once_each_way() -> None:
    table = recipe("swap", cache=False)
    while table.turn():
        for sequence in table.core.workers["w"].swapped:
            assert not sequence.table
            assert len(sequence.host_table) * 16 >= sequence.computed
    assert table.num_pages_out == table.num_pages_in == 3


def test_a_swapped_sequence_finds_what_is_left_of_it_on_the_device() -> None:
    table = recipe("swap")
    table.run()
    assert table.finished["b"].preemptions == 1
    assert table.num_pages_in == 1, "its two full pages were still there, under their keys"


def squeeze(mode: Mode, page_size: int, head: int, position: int) -> TableTop:
    """The second sequence is preempted after about `position` tokens: the first runs out of pages just then."""
    pages = -(-(head + 10 + 2 * position) // page_size)
    worker = PaperWorker(page_size=page_size, pages=pages, host_pages=64, max_step_tokens=128)
    table = TableTop(Settings(preempt=mode), w=worker)
    table.submit("a", list(range(head)), min(11 + 2 * position, pages * page_size + 1 - head))
    table.submit("b", B, 40)
    return table


def test_PS08_a_victim_with_a_row_in_flight_is_preempted_after_its_result_and_keeps_the_token() -> None:
    table = squeeze("drop", page_size=1, head=60, position=8)
    worker = table.core.workers["w"]

    def is_evicting() -> bool:
        return any(s.is_evicting for s in worker.running)

    while not is_evicting():
        assert table.plan("w") or is_evicting() or table.deliver("w")
    victim = next(s for s in worker.running if s.is_evicting)
    assert victim.rows_in_flight
    known = victim.num_generated + victim.pending
    while victim.worker is worker:
        assert table.turn()
    assert victim.num_generated == known
    table.run()
    assert table.tokens["b"] == answer(B, 40)


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("mode", ["swap", "drop"])
def test_PS01_a_preemption_at_any_position_changes_no_answer(mode: Mode, page_size: int) -> None:
    positions: set[int] = set()
    for position in range(1, 36):
        for head in range(60, 60 + min(page_size, 4)):
            table = squeeze(mode, page_size, head, position)
            worker = table.core.workers["w"]
            while table.turn():
                away = (*worker.swapped, *table.core.waiting)
                positions.update(s.num_generated for s in away if s.num_generated)
            assert table.tokens["a"] == answer(list(range(head)), len(table.tokens["a"]))
            assert table.tokens["b"] == answer(B, 40)
            table.assert_empty()
    assert len(positions) >= {1: 30, 4: 25, 16: 8}[page_size]


def test_PG12_two_prompts_in_chunks_that_fill_the_pool_still_make_progress() -> None:
    table = TableTop(Settings(max_chunk=4, preempt="drop"), w=PaperWorker(page_size=4, pages=14, max_step_tokens=8))
    for name in "ab":
        table.submit(name, [ord(name)] * 40, 8)
    table.run(limit=500)
    assert table.tokens == {name: answer([ord(name)] * 40, 8) for name in "ab"}


def test_the_cheaper_way_is_taken() -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=16, host_pages=16))
    table.submit("r", list(range(20)), 8)
    table.turn()
    worker = table.core.workers["w"]
    victim = worker.running[0]
    table.apply(Rates("w", copy_bytes_per_second=1e12, prefill_tokens_per_second=1.0))
    assert prefers_swap(worker, victim)
    table.apply(Rates("w", copy_bytes_per_second=1.0, prefill_tokens_per_second=1e6))
    assert not prefers_swap(worker, victim)
