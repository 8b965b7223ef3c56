import pytest
from hypothesis import given
from hypothesis import strategies as st
from octavo_scheduler.stops import StopScanner


def scan(pieces: list[str], stops: list[str], *, include: bool = False) -> tuple[str, str | None]:
    scanner = StopScanner(stops, include=include)
    shown = ""
    for piece in pieces:
        text, stop = scanner.push(piece)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + scanner.flush(), None


@pytest.mark.parametrize(("include", "expected"), [(False, "one "), (True, "one END")])
def test_a_stop_string_ends_the_text(include: bool, expected: str) -> None:
    assert scan(["one ", "EN", "D two"], ["END"], include=include) == (expected, "END")


def test_only_a_proper_prefix_of_a_stop_is_held_back() -> None:
    scanner = StopScanner(["\n\n", "###"])
    assert scanner.push("a\n") == ("a", None)
    assert scanner.push("b##") == ("\nb", None)
    assert scanner.push("c") == ("##c", None)


def test_the_stop_that_ends_first_wins_and_of_two_that_end_together_the_longest() -> None:
    assert scan(["xaby"], ["b", "ab", "aby"]) == ("x", "ab")
    assert scan(["xaby"], ["aby", "b", "a"]) == ("x", "a")


ALPHABET = st.text("ab", max_size=30)


@given(text=ALPHABET, stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), data=st.data())
def test_any_split_finds_a_stop_where_the_whole_text_has_it(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown, stop = scan(pieces, stops)
    found = [(place + len(s), place, s) for s in stops if (place := text.find(s)) >= 0]
    if found:
        _, place, first = min(found)
        assert (shown, stop) == (text[:place], first)
    else:
        assert (shown, stop) == (text, None)
