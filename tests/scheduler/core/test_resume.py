"""A request that names the beginnings of its answers goes on after them, as if it had never stopped."""

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Refused
from octavo_scheduler.core.request import FinishReason, RequestSpec

from tests.doubles.paper_worker import PaperWorker, answer
from tests.doubles.table_top import TableTop

PROMPT = list(range(1, 11))


def resumed(table: TableTop, beginnings: list[list[int]], num_tokens: int = 12, **fields: object) -> None:
    """Asks for what is left of answers that were interrupted."""
    held = tuple(map(tuple, beginnings))
    table.submit("r", PROMPT, num_tokens, n=len(held), held=held, **fields)
    for branch, tokens in enumerate(beginnings):
        table.tokens[table.key("r", branch)] = list(tokens)


@pytest.mark.parametrize("place", range(1, 12))
def test_an_answer_goes_on_after_its_beginning(place: int) -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=16))
    whole = answer(PROMPT, 12, seed=7)
    resumed(table, [whole[:place]], seed=7)
    table.run()
    assert table.tokens["r"] == whole
    assert (table.finished["r"].reason, table.finished["r"].num_tokens) == (FinishReason.LENGTH, 12)
    table.assert_empty()


def test_of_several_answers_each_goes_on_after_its_own_beginning_and_whole_ones_cost_nothing() -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=64))
    whole = [answer(PROMPT, 12, 7, branch) for branch in range(5)]
    places = [12, 3, 0, 12, 9]
    resumed(table, [ids[:place] for ids, place in zip(whole, places, strict=True)], seed=7, ended=frozenset({0, 3}))
    table.run()
    assert [table.tokens[table.key("r", branch)] for branch in range(5)] == whole
    assert sorted(table.finished) == ["r/1", "r/2", "r/4"]
    assert table.core.counters.generated_tokens == 9 + 12 + 3
    table.assert_empty()


def test_resumed_answers_are_the_same_in_a_pool_too_small_for_all_of_them() -> None:
    table = TableTop(Settings(preempt="drop"), w=PaperWorker(page_size=2, pages=14, host_pages=0))
    whole = [answer(PROMPT, 12, 0, branch) for branch in range(3)]
    resumed(table, [ids[:4] for ids in whole])
    table.run()
    assert [table.tokens[table.key("r", branch)] for branch in range(3)] == whole
    assert table.core.workers["w"].num_drops > 0
    table.assert_empty()


def test_a_resumed_request_may_be_cancelled_in_every_state() -> None:
    for turns in range(8):
        table = TableTop(w=PaperWorker(page_size=4, pages=64))
        resumed(table, [answer(PROMPT, 3, 0, branch) for branch in range(3)], ended=frozenset({1}))
        for _ in range(turns):
            table.turn()
        table.abort("r")
        table.run()
        assert {end.reason for end in table.finished.values()} == {FinishReason.CANCELLED}
        assert sorted(table.finished) == ["r", "r/2"]
        table.assert_empty()


def test_what_is_known_of_an_answer_counts_as_tokens_that_wait_and_is_paid_for_like_a_prompt() -> None:
    settings = Settings(max_queued_tokens=20)
    table = TableTop(settings)
    resumed(table, [answer(PROMPT, 6)])
    assert table.core.waiting.queued.tokens == 16
    assert table.core.submit(RequestSpec(id="s", prompt=(1,) * 5), 0.0)[0].reason == "QUEUE_FULL"  # type: ignore[union-attr]
    table.join("w", PaperWorker(page_size=4, pages=16))
    table.plan("w")
    (request,) = table.core.requests.values()
    assert request.account.counter == 16 * settings.prompt_token_price


def test_an_answer_without_a_limit_that_no_pool_could_go_on_with_is_refused_with_the_numbers() -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=4))
    resumed(table, [answer(PROMPT, 8)], num_tokens=None)  # type: ignore[arg-type]
    assert table.refused["r"] == Refused("r", "TOO_LONG", table.refused["r"].message)
    assert "10 prompt tokens and 9 new tokens need 5 pages of 4 tokens" in table.refused["r"].message


def test_a_prefix_that_reaches_into_the_answer_is_found_and_only_its_prompt_part_is_told() -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=64))
    table.submit("first", PROMPT, 12)
    table.run()
    whole = answer(PROMPT, 12)
    resumed(table, [whole[:10]])
    table.run()
    assert table.tokens["r"] == whole
    assert table.core.requests == {}
    assert table.started["r"].cached == len(PROMPT)
