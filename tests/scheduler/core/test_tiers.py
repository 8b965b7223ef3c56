"""Two tiers as one space of pages: evicted content moves down, comes back up on a hit, and is not copied twice."""

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Flush, Pin, Unpin
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.prefix import full_pages
from octavo_scheduler.core.tiers import swap_out

from tests.doubles.paper_worker import PaperWorker, answer
from tests.doubles.table_top import TableTop

PAGE = 4


def one_worker(pages: int, host_pages: int, settings: Settings | None = None) -> TableTop:
    return TableTop(settings, w=PaperWorker(page_size=PAGE, pages=pages, host_pages=host_pages))


def ask(table: TableTop, name: str, prompt: list[int], max_tokens: int = 3, **fields: object) -> int:
    """Runs one request to its end; how many of its prompt tokens were found."""
    table.submit(name, prompt, max_tokens, **fields)
    table.run()
    assert table.tokens[name] == answer(prompt, max_tokens)
    return table.started[name].cached


def prompt_of(number: int, length: int = 17) -> list[int]:
    return list(range(100 * number, 100 * number + length))


def test_evicted_pages_move_down_and_come_back_up_on_a_hit() -> None:
    table = one_worker(pages=6, host_pages=8)
    ask(table, "a", prompt_of(1))
    ask(table, "b", prompt_of(2))
    assert table.core.workers["w"].host.num_cached >= 3, "what b needed of a's pages went down"
    moved_in = table.num_pages_in
    assert ask(table, "a again", prompt_of(1)) == 16
    assert table.num_pages_in > moved_in
    table.assert_empty()


def test_without_a_host_tier_evicted_pages_are_forgotten() -> None:
    table = one_worker(pages=6, host_pages=0)
    ask(table, "a", prompt_of(1))
    ask(table, "b", prompt_of(2))
    assert ask(table, "a again", prompt_of(1)) == PAGE, (
        "only b's second eviction would have taken the last of a's pages"
    )
    assert table.num_pages_out == table.num_pages_in == 0


def test_what_the_host_tier_holds_already_is_not_moved_down_again() -> None:
    table = one_worker(pages=6, host_pages=12)
    for round_ in range(4):
        for number in (1, 2):
            ask(table, f"{number}, round {round_}", prompt_of(number))
    assert table.num_pages_out <= 12
    table.assert_empty()


def test_the_oldest_content_of_a_full_host_tier_gives_way() -> None:
    table = one_worker(pages=6, host_pages=5)
    for number in range(1, 6):
        ask(table, str(number), prompt_of(number))
    assert ask(table, "1 again", prompt_of(1)) == 0
    table.assert_empty()


def test_a_page_on_its_way_down_is_found_only_when_the_plan_is_done() -> None:
    table = one_worker(pages=6, host_pages=8, settings=Settings(plans_in_flight=1))
    ask(table, "a", prompt_of(1))
    table.submit("b", prompt_of(2), 3)
    table.plan("w")
    host = table.core.workers["w"].host
    assert host.num_fenced > 0
    assert host.num_cached == 0
    table.deliver("w")
    assert host.num_cached > 0
    table.run()
    assert table.tokens["b"] == answer(prompt_of(2), 3)


def test_a_swapped_sequence_shares_what_the_host_tier_holds_and_what_is_left_on_the_device() -> None:
    table = one_worker(pages=9, host_pages=16, settings=Settings(preempt="swap"))
    head = prompt_of(3, 9)
    for name in ("a", "b"):
        table.submit(name, [*head, 7 if name == "a" else 8], 16)
    table.run()
    assert table.finished["b"].preemptions == 1
    out, back = table.num_pages_out, table.num_pages_in
    assert back < out, "the head was still on the device when b came back"
    for name in ("a", "b"):
        assert table.tokens[name] == answer([*head, 7 if name == "a" else 8], 16)
    table.assert_empty()


@pytest.mark.parametrize("pages", [9, 10])
def test_two_victims_with_one_head_need_it_once_on_the_host_tier(pages: int) -> None:
    table = one_worker(pages=pages, host_pages=32, settings=Settings(preempt="swap", plans_in_flight=1))
    head = prompt_of(3, 8)
    asked = {name: [*head, number] for number, name in enumerate("abc")}
    for name, prompt in asked.items():
        table.submit(name, prompt, 16)
    worker = table.core.workers["w"]
    most_shared = 0
    while table.turn():
        tables = [s.host_table for s in worker.swapped]
        most_shared = max([most_shared, *(worker.host.refs[page] for table_ in tables for page in table_)])
    for name, prompt in asked.items():
        assert table.tokens[name] == answer(prompt, 16)
    assert table.finished["c"].preemptions + table.finished["b"].preemptions > 0
    assert most_shared == 2
    table.assert_empty()


def test_without_a_prefix_cache_a_swap_moves_every_page_there_and_back() -> None:
    table = one_worker(pages=7, host_pages=8, settings=Settings(preempt="swap", prefix_cache=False))
    for name in ("a", "b"):
        table.submit(name, [1, 2, 3, 4, 5], 16)
    table.run()
    assert table.num_pages_out == table.num_pages_in > 0
    table.assert_empty()


def test_a_swap_that_moves_nothing_waits_for_no_plan() -> None:
    """All pages of the victim lie on the host tier already, and there may be no plan at all."""
    table = one_worker(pages=6, host_pages=8, settings=Settings(plans_in_flight=1))
    table.submit("a", prompt_of(1, 2 * PAGE), 5)
    table.plan("w")
    table.deliver("w")
    worker = table.core.workers["w"]
    (victim,) = worker.running
    below = worker.host.take(2) or []
    for page, content in zip(below, full_pages(worker, victim, 2 * PAGE), strict=True):
        worker.host.publish(page, content)
    worker.host.give_back(below)
    plan = StepPlan("w", worker.step + 1)
    assert swap_out(worker, victim, plan)
    assert not plan.swap_out
    table.abort("a")
    assert not worker.host.fenced
    assert worker.host.num_cached == 2


def test_a_flush_empties_both_tiers() -> None:
    table = one_worker(pages=6, host_pages=8)
    ask(table, "a", prompt_of(1))
    ask(table, "b", prompt_of(2))
    table.apply(Flush())
    assert ask(table, "a again", prompt_of(1)) == 0


@pytest.mark.parametrize("host_pages", [0, 4])
def test_a_pinned_prefix_outlives_younger_ones_and_yields_only_when_nothing_else_is_left(host_pages: int) -> None:
    table = one_worker(pages=10, host_pages=host_pages)
    table.apply(Pin(name="system", tokens=tuple(prompt_of(1, 18))))
    ask(table, "a", prompt_of(1))
    for number in range(2, 8):
        ask(table, str(number), prompt_of(number))
    assert ask(table, "a again", prompt_of(1)) == 16
    assert ask(table, "all of the pool", list(range(800, 837))) == 0
    for number in range(12, 16):
        ask(table, str(number), prompt_of(number))
    table.assert_empty()


def test_a_pin_counts_on_workers_that_join_later_and_ends_with_unpin() -> None:
    table = TableTop()
    table.apply(Pin(name="system", tokens=tuple(prompt_of(1))))
    table.join("w", PaperWorker(page_size=PAGE, pages=10, host_pages=0))
    ask(table, "a", prompt_of(1))
    ask(table, "b", prompt_of(2))
    ask(table, "c", prompt_of(3))
    assert ask(table, "a again", prompt_of(1)) == 16
    table.apply(Unpin("system"))
    ask(table, "d", prompt_of(4))
    ask(table, "e", prompt_of(5))
    ask(table, "f", prompt_of(6))
    assert ask(table, "a at last", prompt_of(1)) == 0


def test_a_pin_of_another_salt_keeps_nothing_of_this_one() -> None:
    table = one_worker(pages=10, host_pages=0)
    table.apply(Pin(name="system", tokens=tuple(prompt_of(1)), salt="other"))
    for number in range(1, 5):
        ask(table, str(number), prompt_of(number))
    assert ask(table, "1 again", prompt_of(1)) == 0
