from collections.abc import Iterator

import pytest
from octavo_scheduler.core.events import Tick
from octavo_scheduler.core.pages import NULL_PAGE, PagePool

from tests.doubles.paper_worker import PaperWorker
from tests.doubles.table_top import TableTop


def conserve(pool: PagePool) -> None:
    assert pool.num_free + pool.num_held + pool.num_fenced + len(pool.quarantined) == pool.total
    assert len(set(pool.free)) == len(pool.free)


def test_taking_gives_all_or_none() -> None:
    pool = PagePool(5)
    assert pool.take(6) is None
    assert pool.num_free == 5
    pages = pool.take(5)
    assert pages is not None
    assert sorted(pages) == [1, 2, 3, 4, 5]
    assert pool.take(1) is None
    assert pool.take(0) == []
    conserve(pool)


def test_the_null_page_is_never_handed_out_and_giving_it_back_does_nothing() -> None:
    pool = PagePool(3)
    assert NULL_PAGE not in (pool.take(3) or [])
    pool.give_back([NULL_PAGE, NULL_PAGE])
    assert pool.num_free == 0
    conserve(pool)


def test_a_page_given_back_may_be_taken_at_once() -> None:
    pool = PagePool(2)
    pages = pool.take(2)
    assert pages is not None
    pool.give_back(pages[:1])
    assert pool.take(1) == pages[:1]


def test_a_fenced_page_is_free_only_when_its_step_is_done() -> None:
    pool = PagePool(2)
    pages = pool.take(2)
    assert pages is not None
    pool.give_back(pages, until=7)
    assert (pool.num_held, pool.num_fenced, pool.num_free) == (0, 2, 0)
    pool.lift(6)
    assert pool.take(1) is None
    pool.lift(7)
    assert pool.num_free == 2
    conserve(pool)


@pytest.mark.parametrize("until", [None, 3])
def test_PG01_PG02_a_page_given_back_twice_is_quarantined_and_the_pool_stays_whole(until: int | None) -> None:
    pool = PagePool(4)
    pages = pool.take(2)
    assert pages is not None
    pool.give_back([pages[0], pages[0], pages[1]], until)
    pool.lift(3)
    assert pool.quarantined == {pages[0]}
    assert pool.num_free == 3
    conserve(pool)
    assert pages[0] not in (pool.take(3) or [])


def test_the_peak_is_remembered() -> None:
    pool = PagePool(4)
    pool.give_back(pool.take(3) or [])
    pool.take(1)
    assert pool.peak_held == 3


class Watched(list[int]):
    """A free list that counts how often it is gone through."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        self.looks += 1
        return super().__iter__()

    def __contains__(self, page: object) -> bool:
        self.looks += 1
        return super().__contains__(page)


def test_a_table_that_is_given_back_twice_costs_no_look_at_all_free_pages_for_each_of_its_pages() -> None:
    pool = PagePool(1000)
    table = pool.take(400) or []
    pool.give_back(table)
    pool.free = free = Watched(pool.free)
    pool.give_back(table)
    assert pool.quarantined == set(table)
    assert free.looks < 5
    assert len(pool.complaints) == 400
    conserve(pool)


def test_a_table_that_leaks_costs_no_look_at_all_free_pages_for_each_of_its_pages() -> None:
    worker = PaperWorker(pages=1000)
    table = TableTop(w=worker)
    pool = table.core.workers["w"].device
    leaked = pool.take(400) or []
    pool.free = free = Watched(pool.free)
    table.core.apply(Tick(), 1.0)
    assert pool.quarantined == set(leaked)
    assert free.looks < 10
    conserve(pool)
