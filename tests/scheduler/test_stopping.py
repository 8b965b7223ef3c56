"""Where an answer ends and what is shown of it: what other servers got wrong."""

import pytest
from octavo_scheduler.answer import BranchEnd, Piece
from octavo_scheduler.core.request import FinishReason

from tests.scheduler.scripted import END, end, of_texts, parsed, streamed, texts, tokens


@pytest.mark.parametrize("include_stop", [False, True])
def test_ST01_of_a_stop_string_that_comes_in_parts_nothing_is_shown_before_it_is_certain(include_stop: bool) -> None:
    model = of_texts("ABC", "DEF", "G", "HI", "J", "K")
    request = parsed(model, stops=["DEFGHIJ"], include_stop=include_stop)
    assert texts(streamed(model, request, [0, 1, 2, 3, 4])) == ["ABC", "", "", "", "DEFGHIJ" if include_stop else ""]
    assert texts(streamed(model, request, [0, 1, 2, 3, 5, 4])) == ["ABC", "", "", "", "DEFGHIK", "J"], "it was none"
    assert texts(streamed(model, request, [0, 1, 2])) == ["ABC", "", "", "DEFG"], (
        "the end made certain that it was none"
    )


def test_ST02_a_stop_string_may_begin_and_end_inside_tokens() -> None:
    model = of_texts("ab", "cd", "ef")
    events = streamed(model, parsed(model, stops=["bcd"]), [0, 1, 2])
    assert "".join(texts(events)) == "a"
    assert end(events).branches == (BranchEnd(FinishReason.STOP, "bcd", None),)
    assert "".join(texts(streamed(model, parsed(model, stops=["bc"]), [0, 1, 2]))) == "a"


@pytest.mark.parametrize("skip_special_tokens", [True, False])
@pytest.mark.parametrize("include_stop", [True, False])
def test_ST02_a_control_token_that_ends_an_answer_takes_no_text_with_it(
    skip_special_tokens: bool, include_stop: bool
) -> None:
    model = of_texts("ab", "cd")
    request = parsed(model, include_stop=include_stop, skip_special_tokens=skip_special_tokens)
    events = streamed(model, request, [0, 1, 2], reason=FinishReason.STOP)
    is_shown = include_stop and not skip_special_tokens
    assert "".join(texts(events)) == "abcd" + (END if is_shown else "")
    assert end(events).branches == (BranchEnd(FinishReason.STOP, None, 2),)


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_ST04_ids_come_as_they_are_known_and_their_text_but_for_what_may_be_a_stop(at_once: int) -> None:
    model = of_texts("aX", "Y", "Yb", "Z", "c")
    ids = [0, 2, 0, 1, 4, 0, 1]
    events = streamed(model, parsed(model, stops=["XYZ"]), ids, at_once)
    known: list[int] = []
    shown = ""
    for piece in (event for event in events if isinstance(event, Piece)):
        assert piece.first_index == len(known)
        known += piece.tokens
        shown += piece.text
        decoded = model.vocabulary.decode(known)
        assert decoded.startswith(shown)
        assert len(decoded) - len(shown) < len("XYZ")
    assert known == ids
    assert shown == model.vocabulary.decode(ids), "at the end it is all of it"


@pytest.mark.parametrize("num_more", [0, 1, 2])
@pytest.mark.parametrize("at_once", [1, 3, 8])
def test_ST06_tokens_after_a_stop_that_were_on_their_way_are_neither_shown_nor_counted(
    num_more: int, at_once: int
) -> None:
    model = of_texts("one ", "st", "op", " two")
    events = streamed(model, parsed(model, stops=["stop"]), [0, 1, 2, *[3] * num_more], at_once)
    assert "".join(texts(events)) == "one "
    assert tokens(events) == [0, 1, 2]
    assert end(events).completion_tokens == 3
    assert end(events).branches == (BranchEnd(FinishReason.STOP, "stop", None),)


@pytest.mark.parametrize("at_once", [1, 3])
def test_ST10_the_token_that_ends_an_answer_is_among_its_ids_and_counted(at_once: int) -> None:
    model = of_texts("a", "b")
    events = streamed(model, parsed(model), [0, 1, 2], at_once, FinishReason.STOP)
    assert tokens(events) == [0, 1, 2]
    assert "".join(texts(events)) == "ab"
    assert end(events).completion_tokens == 3
    assert end(events).branches == (BranchEnd(FinishReason.STOP, None, 2),)
