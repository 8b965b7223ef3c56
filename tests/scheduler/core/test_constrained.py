"""Constrained requests: a token is drawn from a mask, and the mask follows from all tokens before it."""

from collections.abc import Sequence

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Masked
from octavo_scheduler.core.explain import explain
from octavo_scheduler.core.request import FinishReason

from tests.doubles.paper_worker import PaperWorker, answer, mask_after
from tests.doubles.table_top import TableTop

PROMPT = [5, 6, 7]


def slots_of(table: TableTop) -> list[int]:
    """Of the rows of the latest plan."""
    return [
        int.from_bytes(table.plans[-1].rows.slot[i : i + 2], "little")
        for i in range(0, len(table.plans[-1].rows.slot), 2)
    ]


def masks_arrive(table: TableTop) -> None:
    while table.owed:
        table.masked()


def test_a_request_does_not_start_before_its_mask_is_there_and_others_do() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("a", PROMPT, 4, is_constrained=True)
    table.submit("b", PROMPT, 4)
    assert "is being worked out" in explain(table.core, "a", table.now)
    assert table.plan("w")
    assert len(slots_of(table)) == 1
    table.masked()
    assert table.plan("w")
    assert len(slots_of(table)) == 2
    table.run()
    assert table.tokens["a"] == answer(PROMPT, 4, is_constrained=True)
    assert table.tokens["b"] == answer(PROMPT, 4)


def test_a_row_sits_out_until_its_last_token_is_back_and_the_next_mask_is_there() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("a", PROMPT, 4, is_constrained=True)
    table.submit("b", PROMPT, 9)
    masks_arrive(table)
    assert table.plan("w")
    assert table.plan("w")
    assert len(slots_of(table)) == 1, "its first token is in flight"
    table.deliver("w")
    assert table.plan("w")
    assert len(slots_of(table)) == 1, "its token is known, its mask is not"
    masks_arrive(table)
    table.deliver("w")
    assert table.plan("w")
    assert len(slots_of(table)) == 2
    table.run()


def test_where_all_are_constrained_they_wait_for_each_other_and_go_together() -> None:
    table = TableTop(w=PaperWorker())
    for name in ("a", "b"):
        table.submit(name, PROMPT, 9, is_constrained=True)
    table.masked(0)
    assert table.plan("w")
    masks_arrive(table)
    assert table.plan("w")
    table.deliver("w")
    masks_arrive(table)
    assert not table.plan("w"), "the other one is in flight"
    table.deliver("w")
    assert not table.plan("w"), "the other one has no mask yet"
    masks_arrive(table)
    assert table.plan("w")
    assert len(slots_of(table)) == 2
    table.run()
    assert len(table.tokens["b"]) == 9


def late(**fields: int) -> PaperWorker:
    return PaperWorker(minor=3, **fields)


def waiting_for_masks(*names: str) -> TableTop:
    """A worker that has answered the first plan of these requests, and has the second without its masks."""
    table = TableTop(w=late())
    for name in names:
        table.submit(name, PROMPT, 9, is_constrained=True)
    masks_arrive(table)
    table.plan("w")
    table.plan("w")
    table.deliver("w")
    return table


def test_where_masks_may_follow_a_row_is_planned_while_its_last_token_is_in_flight_and_its_mask_comes_after() -> None:
    table = TableTop(w=late())
    for name in ("a", "b"):
        table.submit(name, PROMPT, 4, is_constrained=True)
    masks_arrive(table)
    assert table.plan("w")
    assert table.plan("w")
    assert len(slots_of(table)) == 2
    assert not table.plans[-1].rows.mask
    table.deliver("w")
    table.masked()
    assert not table.results["w"], "one mask is missing"
    table.masked()
    assert len(table.results["w"]) == 1
    table.run()
    for name in ("a", "b"):
        assert table.tokens[name] == answer(PROMPT, 4, is_constrained=True)


def test_masks_that_follow_are_not_waited_for_when_their_requests_have_ended() -> None:
    table = waiting_for_masks("a", "b")
    table.abort("a")
    assert not table.results["w"]
    table.masked(1)
    assert table.results["w"], "that of b is there"
    table.abort("b")
    table.run()
    table.assert_empty()


def test_a_plan_of_which_all_requests_have_ended_needs_no_masks() -> None:
    table = waiting_for_masks("a")
    table.abort("a")
    assert table.results["w"]
    table.run()
    table.assert_empty()


def test_masks_follow_only_where_nobody_waits_for_them_who_needs_none() -> None:
    table = TableTop(w=late(pages=64))
    table.submit("a", PROMPT, 30, is_constrained=True)
    masks_arrive(table)
    table.plan("w")
    table.submit("b", PROMPT, 9)
    table.plan("w")
    assert len(slots_of(table)) == 1, "that of b: its token is in flight, and b would wait for its mask"
    while "b" not in table.finished:
        assert table.plans[-1].rows.mask or not table.plans[-1].rows.masked_row
        table.turn()
    for _ in range(3):
        table.turn()
    assert table.plans[-1].rows.masked_row
    assert not table.plans[-1].rows.mask
    table.run()
    assert table.tokens["a"] == answer(PROMPT, 30, is_constrained=True)


@pytest.mark.parametrize("how", ["swap", "drop"])
def test_SO05_a_preempted_answer_goes_on_with_the_mask_that_it_had(how: str) -> None:
    table = TableTop(Settings(preempt=how), w=PaperWorker(pages=8, host_pages=8))  # type: ignore[arg-type]
    names = [f"r{number}" for number in range(4)]
    for number, name in enumerate(names):
        table.submit(name, [*PROMPT, number], 12, seed=number, is_constrained=True)
    table.run()
    worker = table.core.workers["w"]
    assert worker.num_swaps + worker.num_drops > 0
    for number, name in enumerate(names):
        assert table.tokens[name] == answer([*PROMPT, number], 12, number, is_constrained=True)


def test_SO05_a_lost_worker_loses_no_mask() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("a", PROMPT, 6, is_constrained=True)
    masks_arrive(table)
    table.plan("w")
    table.deliver("w")
    masks_arrive(table)
    table.kill("w")
    table.join("other", PaperWorker())
    assert table.plan("other"), "no mask has to come again"
    table.run()
    assert table.tokens["a"] == answer(PROMPT, 6, is_constrained=True)


def test_masks_of_earlier_positions_and_of_what_has_ended_change_nothing() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("a", PROMPT, 3, is_constrained=True)
    first = table.owed[0]
    masks_arrive(table)
    table.plan("w")
    table.deliver("w")
    masks_arrive(table)
    table.apply(first)
    assert table.plan("w")
    table.run()
    table.apply(first)
    assert table.tokens["a"] == answer(PROMPT, 3, is_constrained=True)
    table.assert_empty()


def test_a_request_of_which_nobody_can_say_what_comes_next_ends_with_that_and_others_go_on() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("a", PROMPT, 6, n=2, is_constrained=True)
    table.submit("b", PROMPT, 6, is_constrained=True)
    table.turn()
    table.apply(Masked("a", 1, 1))
    table.run()
    assert {table.finished[name].reason for name in ("a", "a/1")} == {FinishReason.NO_MASK}
    assert table.tokens["b"] == answer(PROMPT, 6, is_constrained=True)
    table.assert_empty()


def test_all_branches_are_drawn_from_one_mask_first_and_then_each_from_its_own() -> None:
    table = TableTop(w=PaperWorker(pages=32))
    table.submit("a", PROMPT, 6, n=3, is_constrained=True)
    table.run()
    for branch, name in enumerate(("a", "a/1", "a/2")):
        assert table.tokens[name] == answer(PROMPT, 6, 0, branch, is_constrained=True)


def test_held_answers_go_on_from_masks_of_their_own() -> None:
    whole = [answer(PROMPT, 6, 0, branch, is_constrained=True) for branch in range(2)]
    held: Sequence[tuple[int, ...]] = (tuple(whole[0][:4]), tuple(whole[1][:1]))
    table = TableTop(w=PaperWorker())
    table.submit("a", PROMPT, 6, n=2, held=tuple(held), is_constrained=True)
    assert [(masked.branch, masked.position) for masked in table.owed] == [(0, 4), (1, 1)]
    table.run()
    assert [table.tokens["a"], table.tokens["a/1"]] == whole


def test_a_worker_that_knows_no_masks_gets_no_constrained_request_and_holds_none_up() -> None:
    old, new = PaperWorker(minor=1, pages=64), PaperWorker(pages=8)
    table = TableTop(old=old, new=new)
    table.submit("a", PROMPT, 6, is_constrained=True)
    masks_arrive(table)
    assert not table.plan("old")
    assert "old is of a version that does not know what it asks for" in explain(table.core, "a", table.now)
    assert table.plan("new"), "though the old one has more room"
    table.run()
    assert table.tokens["a"] == answer(PROMPT, 6, is_constrained=True)


def test_a_plan_carries_the_mask_of_the_position_that_it_draws() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("a", PROMPT, 2, is_constrained=True)
    table.run()
    said = answer(PROMPT, 2, is_constrained=True)
    masks = [plan.rows.mask for plan in table.plans if plan.rows.slot]
    assert masks == [mask_after(PROMPT), mask_after([*PROMPT, said[0]])]
