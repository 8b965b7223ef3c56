"""What is kept of answers whose readers have gone: for a while, and never more than fits."""

from octavo_scheduler.core.events import Committed
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.kept import Kept
from octavo_scheduler.requests import Parsed
from octavo_scheduler.transcript import Transcript


class Shelf:
    """Answers under names, and a clock that is set by hand."""

    def __init__(self, most_answers: int = 100, most_tokens: int = 1000) -> None:
        self.now = 0.0
        self.kept = Kept(60.0, most_answers, most_tokens, clock=lambda: self.now)

    def parsed(self, name: str) -> Parsed:
        spec = RequestSpec(id=name, prompt=(1, 2), max_tokens=5)
        settings = {"include_stop": False, "skip_special_tokens": True, "stream_interval": 1}
        return Parsed(spec=spec, label=name, name=name, stops=(), **settings)  # type: ignore[arg-type]

    def open(self, name: str) -> Transcript:
        return self.kept.open(self.parsed(name))

    def read(self, name: str, num_tokens: int) -> Transcript:
        """Somebody reads so many tokens and leaves."""
        transcript = self.open(name)
        for place in range(num_tokens):
            transcript.put(Committed(name, 0, place, 7))
        self.kept.leave(self.parsed(name), transcript)
        return transcript


def test_an_answer_is_there_for_a_minute_after_its_reader_has_left() -> None:
    shelf = Shelf()
    transcript = shelf.read("a", 3)
    shelf.now = 59.0
    assert shelf.open("a") is transcript
    shelf.now = 200.0
    assert shelf.open("a") is transcript, "it has a reader"
    shelf.kept.leave(shelf.parsed("a"), transcript)
    shelf.now = 260.0
    assert shelf.open("a") is not transcript


def test_beyond_a_number_of_answers_or_tokens_those_are_forgotten_that_were_left_first() -> None:
    shelf = Shelf(most_answers=3)
    for name in "abcde":
        shelf.read(name, 1)
    assert len(shelf.kept) == 3
    shelf = Shelf(most_tokens=10)
    first, second, third = shelf.read("a", 4), shelf.read("b", 4), shelf.read("c", 4)
    assert len(shelf.kept) == 2
    assert shelf.open("b") is second
    assert shelf.open("c") is third
    assert shelf.open("a") is not first


def test_who_has_a_reader_is_not_forgotten_however_much_there_is() -> None:
    shelf = Shelf(most_answers=2, most_tokens=10)
    held = shelf.open("held")
    for number in range(20):
        shelf.read(str(number), 2)
    assert shelf.open("held") is held
    assert len(shelf.kept) == 3


def test_20_000_names_leave_no_more_than_the_bound() -> None:
    shelf = Shelf(most_answers=50)
    for number in range(20_000):
        shelf.now += 0.001
        shelf.read(str(number), 1)
    assert len(shelf.kept) == 50


def test_nothing_is_kept_of_what_was_refused_or_has_no_name() -> None:
    shelf = Shelf()
    shelf.read("a", 0)
    shelf.read("", 4)
    assert len(shelf.kept) == 0


def test_every_name_that_is_forgotten_is_told() -> None:
    shelf = Shelf(most_answers=2)
    told: list[tuple[str, str]] = []
    shelf.kept.on_forget = told.append
    for name in "abc":
        shelf.read(name, 1)
    shelf.read("nothing came", 0)
    assert told == [("", "a"), ("", "nothing came")]
    assert [("", name) in shelf.kept for name in "abc"] == [False, True, True]
