"""What is counted for those who watch, and that it costs no more than it has to."""

import asyncio

import pytest
from octavo_scheduler import errors
from octavo_scheduler.answer import Begin, BranchEnd, End
from octavo_scheduler.core.events import Committed, Finished, Started
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import FinishReason
from octavo_scheduler.tally import ENDINGS, Histogram, RequestTally, StepTally


def end(*reasons: FinishReason, tokens: int = 5) -> End:
    return End(
        branches=tuple(BranchEnd(reason, None, None) for reason in reasons),
        prompt_tokens=3,
        cached_tokens=0,
        completion_tokens=tokens,
        queued=1.0,
        first_token_seconds=3.0,
        total_seconds=11.0,
        preemptions=0,
    )


def test_a_value_belongs_to_the_first_bound_that_it_does_not_exceed() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.note(value)
    histogram.note(2.0, count=10)
    assert histogram.counts == [2, 12, 1]
    assert histogram.sum == 27.5


def test_tokens_of_one_turn_that_waited_equally_long_are_noted_together() -> None:
    tally = StepTally()
    noted: list[tuple[float, int]] = []
    tally.inter_token.note = lambda value, count=1: noted.append((value, count))  # type: ignore[method-assign]
    both = [Committed("a", 0, 0, 1), Committed("b", 0, 0, 1)]
    tally.delivered([Started("a", 0.0, 0), Started("b", 0.0, 0), *both], 1.0)
    tally.delivered([Committed("c", 0, 0, 1)], 2.0)
    tally.delivered([*both, Committed("c", 0, 1, 1)], 5.0)
    assert sorted(noted) == [(3.0, 1), (4.0, 2)], "a first token has no gap, and two of one gap are one note"


def test_branches_that_have_ended_are_forgotten() -> None:
    tally = StepTally()
    tally.delivered([Committed("a", 0, 0, 1), Committed("a", 1, 0, 1)], 1.0)
    tally.delivered([Finished("a", 0, FinishReason.STOP, 1, 0)], 2.0)
    tally.delivered([Committed("a", 0, 0, 1), Committed("a", 1, 1, 1)], 4.0)
    assert sum(tally.inter_token.counts) == 1, "the other branch goes on"
    assert tally.inter_token.sum == 3.0


def test_swaps_are_counted_in_bytes_each_way() -> None:
    tally = StepTally()
    tally.planned(StepPlan("w", 1, swap_out=[(1, 1), (2, 2)], swap_in=[(3, 3)], row_tokens=[4, 1]), 100)
    tally.planned(StepPlan("w", 2, swap_out=[(1, 1)]), 100)
    assert (tally.swapped_out_bytes, tally.swapped_in_bytes) == (300, 100)
    assert (sum(tally.step_tokens.counts), tally.step_tokens.sum) == (1, 5.0), "a plan without rows computes no tokens"


@pytest.mark.parametrize(
    ("reasons", "outcome"),
    [
        ((FinishReason.STOP,), "stop"),
        ((FinishReason.STOP, FinishReason.LENGTH), "length"),
        ((FinishReason.LENGTH, FinishReason.CANCELLED), "aborted"),
    ],
)
def test_a_request_counts_as_the_worst_end_of_its_branches(reasons: tuple[FinishReason, ...], outcome: str) -> None:
    tally = RequestTally()
    with tally.request() as course:
        course.note(Begin(3, 2, 1.0))
        course.note(end(*reasons))
    assert +tally.outcomes == {outcome: 1}
    assert (tally.prefix_queries, tally.prefix_hits) == (3, 2)
    assert (tally.queue.sum, tally.prefill.sum, tally.decode.sum, tally.total.sum) == (1.0, 2.0, 8.0, 11.0)
    assert tally.token.sum == 2.0, "8 s for the 4 tokens after the first"


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    tally = RequestTally()
    tally.ended(end(FinishReason.LENGTH, tokens=1))
    assert sum(tally.token.counts) == 0
    assert sum(tally.decode.counts) == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errors.Overloaded("full"), "overloaded"),
        (errors.DeadlineExceeded("late"), "deadline"),
        (errors.Unavailable("down"), "unavailable"),
        (errors.RequestFailed("broken"), "failed"),
        (errors.InvalidRequest("wrong"), "invalid"),
        (errors.NameTaken("twice"), "invalid"),
        (GeneratorExit(), "cancelled"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_every_end_has_its_outcome(error: BaseException, outcome: str) -> None:
    tally = RequestTally()
    assert set(tally.outcomes) == set(ENDINGS), "those that have not come yet are there as well"
    with pytest.raises(type(error)), tally.request():
        raise error
    assert +tally.outcomes == {outcome: 1}


def test_whoever_leaves_after_the_end_has_not_cancelled() -> None:
    tally = RequestTally()

    def left() -> None:
        with tally.request() as course:
            course.note(end(FinishReason.STOP))
            raise GeneratorExit

    with pytest.raises(GeneratorExit):
        left()
    assert +tally.outcomes == {"stop": 1}


def test_a_request_that_cannot_be_read_is_counted_too() -> None:
    tally = RequestTally()
    with pytest.raises(errors.InvalidRequest), tally.refusals():
        raise errors.InvalidRequest("wrong")
    assert +tally.outcomes == {"invalid": 1}
