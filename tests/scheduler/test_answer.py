"""Branches of one request: each with its own text, stop strings and end; one stream that ends with the last of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from octavo_scheduler.answer import Answer, Begin, BranchEnd, Cut, End, Event, Piece
from octavo_scheduler.core.events import Committed, Finished, Output, Refused, Started
from octavo_scheduler.core.request import FinishReason, RequestSpec
from octavo_scheduler.errors import DeadlineExceeded, InvalidRequest, Overloaded, RequestError, RequestFailed
from octavo_scheduler.model import ServedModel
from octavo_scheduler.requests import Parsed

STARTED = Started("r", 0.25, 2)


def request(n: int, stops: Sequence[str] = (), **changes: Any) -> Parsed:
    max_tokens = changes.pop("max_tokens", None)
    spec = RequestSpec(id="r", prompt=(5, 6, 7), n=n, stop_token_ids=frozenset({2}), max_tokens=max_tokens)
    settings: dict[str, Any] = {"include_stop": False, "skip_special_tokens": False, "stream_interval": 1, **changes}
    return Parsed(spec=spec, label="r", stops=tuple(stops), **settings)


def committed(branch: int, first: int, tokens: Sequence[int]) -> list[Output]:
    return [Committed("r", branch, first + nth, token) for nth, token in enumerate(tokens)]


def finished(
    branch: int, reason: FinishReason = FinishReason.LENGTH, num_tokens: int = 0, *, preemptions: int = 0
) -> Finished:
    return Finished("r", branch, reason, num_tokens, preemptions)


def texts(events: Sequence[Event], n: int) -> list[str]:
    return ["".join(e.text for e in events if isinstance(e, Piece) and e.branch == branch) for branch in range(n)]


def test_PA02_each_branch_has_a_text_of_its_own_tokens(model: ServedModel) -> None:
    """Characters of several tokens; the branches come in turns, each in the middle of the others' characters."""
    words = ["n\u00e9e \u00e0 S\u00e8te", "\u4e00\u4e8c\u4e09 page", "\U0001f642\U0001f643"]
    ids = [model.vocabulary.encode(word) for word in words]
    answer = Answer(model, request(3))
    events = answer.take([STARTED])
    assert events == [Begin(3, 2, 0.25)]
    for place in range(max(map(len, ids))):
        events += answer.take([Committed("r", b, place, ids[b][place]) for b in (2, 0, 1) if place < len(ids[b])])
    events += answer.take([finished(branch) for branch in (1, 2, 0)])
    assert texts(events, 3) == words
    for branch, expected in enumerate(ids):
        mine = [event for event in events if isinstance(event, Piece) and event.branch == branch]
        assert [token for piece in mine for token in piece.tokens] == expected
        assert [piece.first_index for piece in mine] == list(range(len(expected)))
    end = events[-1]
    assert isinstance(end, End)
    assert (end.prompt_tokens, end.cached_tokens, end.queued) == (3, 2, 0.25)
    assert end.completion_tokens == sum(map(len, ids))


def test_a_stop_string_ends_the_branch_in_which_it_stands_and_no_other(model: ServedModel) -> None:
    ids = model.vocabulary.encode("one two three")
    num_stop = len(model.vocabulary.encode("one two"))
    answer = Answer(model, request(2, stops=["two"]))
    events = answer.take([STARTED, *committed(1, 0, ids)])
    assert answer.take_cuts() == [Cut(branch=1, at=num_stop)]
    assert answer.take_cuts() == []
    other = model.vocabulary.encode("one two"[:6])
    events += answer.take([*committed(0, 0, other), finished(1, FinishReason.STOP)])
    assert answer.take_cuts() == []
    assert not answer.is_ended
    events += answer.take([finished(0)])
    assert texts(events, 2) == ["one tw", "one "]
    end = events[-1]
    assert isinstance(end, End)
    assert end.branches == (BranchEnd(FinishReason.LENGTH, None, None), BranchEnd(FinishReason.STOP, "two", None))
    assert end.completion_tokens == len(other) + num_stop


def test_a_branch_that_has_ended_meanwhile_is_not_cut(model: ServedModel) -> None:
    answer = Answer(model, request(2, stops=["b"]))
    answer.take([STARTED, *committed(1, 0, model.vocabulary.encode("ab")), finished(1)])
    assert answer.take_cuts() == []


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_the_stream_ends_once_with_all_branches_in_order_whichever_ended_first(
    model: ServedModel, order: tuple[int, ...]
) -> None:
    answer = Answer(model, request(4))
    answer.take([STARTED])
    reasons = [FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED, FinishReason.LENGTH]
    ends = []
    for nth, branch in enumerate(order):
        assert not answer.is_ended
        events = answer.take([finished(branch, reasons[branch], preemptions=nth)])
        ends += [event for event in events if isinstance(event, End)]
    assert answer.is_ended
    (end,) = ends
    assert [branch.reason for branch in end.branches] == reasons
    assert end.preemptions == 3


def test_a_branch_may_end_before_it_said_anything(model: ServedModel) -> None:
    events = Answer(model, request(3)).take([finished(branch, FinishReason.CANCELLED) for branch in range(3)])
    begin, end = events
    assert isinstance(begin, Begin)
    assert isinstance(end, End)
    assert (end.completion_tokens, len(end.branches)) == (0, 3)


def test_the_interval_between_pieces_counts_for_each_branch_alone(model: ServedModel) -> None:
    ids = model.vocabulary.encode("xyz")
    assert len(ids) == 3
    answer = Answer(model, request(2, stream_interval=3))
    answer.take([STARTED])
    assert answer.take([*committed(0, 0, ids[:2]), *committed(1, 0, ids[:2])]) == []
    assert answer.take(committed(1, 2, ids[2:])) == [Piece(1, "xyz", tuple(ids), 0)]
    assert answer.take([finished(0)]) == [Piece(0, "xy", tuple(ids[:2]), 0)]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (finished(1, FinishReason.DEADLINE), DeadlineExceeded),
        (finished(1, FinishReason.FAILED), RequestFailed),
        (finished(1, FinishReason.NO_NUMBERS), RequestFailed),
        (Refused("r", "QUEUE_FULL", "full"), Overloaded),
        (Refused("r", "TOO_LONG", "long"), InvalidRequest),
    ],
)
def test_an_error_of_any_branch_is_the_requests(model: ServedModel, last: Output, error: type[RequestError]) -> None:
    with pytest.raises(error):
        Answer(model, request(2)).take([STARTED, finished(0), last])


UNUSUAL = "n\u00e9e \u00e0 S\u00e8te \u4e00\u4e8c\u4e09 \U0001f642\U0001f643 the end of it all"


@pytest.mark.parametrize("stops", [(), ("\u4e8c\u4e09 ",), ("of a", "of all"), ("missing",)])
@pytest.mark.parametrize("changes", [{}, {"include_stop": True}, {"stream_interval": 3}])
def test_resumed_after_any_token_text_stops_and_counts_are_those_of_the_whole_answer(
    model: ServedModel, stops: Sequence[str], changes: dict[str, Any]
) -> None:
    """Seams inside characters and inside stop strings."""
    ids = model.vocabulary.encode(UNUSUAL)
    whole = Answer(model, request(1, stops, **changes))
    events = whole.take([STARTED, *committed(0, 0, ids), finished(0)])
    text, end = texts(events, 1)[0], events[-1]
    assert isinstance(end, End)
    for place in range(1, end.completion_tokens + 1):
        before = Answer(model, request(1, stops, **{**changes, "stream_interval": 1}))
        shown = texts(before.take([STARTED, *committed(0, 0, ids[:place])]), 1)[0]
        asked = request(1, stops, **changes)
        resumed = Answer(model, replace(asked, spec=replace(asked.spec, held=(tuple(ids[:place]),))))
        events = resumed.take([STARTED, *committed(0, 0, ids), finished(0)])
        pieces = [event for event in events if isinstance(event, Piece)]
        assert shown + texts(events, 1)[0] == text
        assert [token for piece in pieces for token in piece.tokens] == ids[place : end.completion_tokens]
        assert all(piece.first_index >= place for piece in pieces)
        assert isinstance(events[-1], End)
        assert (events[-1].branches, events[-1].completion_tokens) == (end.branches, end.completion_tokens)


def test_what_is_held_back_until_the_end_comes_by_itself(model: ServedModel) -> None:
    """So that a client that lost the end, but holds all tokens, can tell whether it has this too."""
    ids = model.vocabulary.encode("one tw")
    events = Answer(model, request(1, ["two"])).take([STARTED, *committed(0, 0, ids), finished(0)])
    assert events[1:3] == [Piece(0, "one ", tuple(ids), 0), Piece(0, "tw", (), len(ids))]


def test_a_branch_knows_by_its_tokens_alone_that_it_is_whole(model: ServedModel) -> None:
    ids = model.vocabulary.encode("one two")
    answer = Answer(model, request(4, ["two"], max_tokens=len(ids)))
    assert answer.reached_ends() == []
    answer.take([*committed(0, 0, ids), *committed(1, 0, [*ids[:2], 2]), *committed(2, 0, [9] * len(ids))])
    ends = [(end.branch, end.reason, end.num_tokens, end.stop_token) for end in answer.reached_ends()]
    stop, length = FinishReason.STOP, FinishReason.LENGTH
    assert ends == [(0, stop, len(ids), None), (1, stop, 3, 2), (2, length, len(ids), None)]
