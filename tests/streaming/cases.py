"""Answers through the front's own code: in random tokens, in random portions, with stop strings anywhere.

What must be shown is said by the whole text, of which the code under test sees one token after the other.
"""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise

from octavo_scheduler import limits
from octavo_scheduler.answer import Answer, Cut, End, Event, Piece
from octavo_scheduler.core.events import Committed, Finished, Started
from octavo_scheduler.core.request import FinishReason, RequestSpec
from octavo_scheduler.model import ServedModel
from octavo_scheduler.requests import Parsed

from tests.streaming.scripts import SCRIPTS, Script, sample
from tests.streaming.vocabularies import Kind

REPLACEMENT = "\ufffd"
MOST_CHARACTERS = 10
MOST_BOUNDARIES = 8
"""Within one stop string, of which every set is tried."""


@dataclass
class Findings:
    """`different`: answers of which text, tokens, indices or end are not those of the whole text."""

    splits: int = 0
    different: int = 0
    stray_replacement: int = 0
    stop_leaks: int = 0
    stop_duplicates: int = 0
    stopped: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def num_wrong(self) -> int:
        return self.different + self.stray_replacement + self.stop_leaks + self.stop_duplicates

    def add(self, other: dict[str, object]) -> None:
        """The counts of another run."""
        for name, value in other.items():
            setattr(self, name, getattr(self, name) + value)

    def counts(self) -> dict[str, object]:
        return {**asdict(self), "problems": self.problems[:5]}


@dataclass(frozen=True, kw_only=True)
class Case:
    """An answer to be streamed: what it goes on after, how many of its tokens come at once, and what stops it."""

    kind: Kind
    prompt: tuple[int, ...] = ()
    ids: tuple[int, ...]
    portions: tuple[int, ...]
    stops: tuple[str, ...] = ()
    include_stop: bool = False
    interval: int = 1

    def text(self, num_tokens: int | None = None) -> str:
        """Of the first tokens, without what the prompt had already."""
        ids = self.ids if num_tokens is None else self.ids[:num_tokens]
        return self.kind.text((*self.prompt, *ids))[len(self.kind.text(self.prompt)) :]


@dataclass(frozen=True)
class Shown:
    """All that a client gets."""

    text: str
    tokens: tuple[int, ...]
    indices: tuple[int, ...]
    stop: str | None
    cuts: tuple[Cut, ...]


def expected(case: Case) -> Shown:
    """Of stop strings that which ends first counts, of those that end together the longest."""
    whole = case.text()
    found = [(place + len(stop), place, stop) for stop in case.stops if (place := whole.find(stop)) >= 0]
    if not found:
        return Shown(whole, case.ids, tuple(range(len(case.ids))), None, ())
    end, place, stop = min(found)
    num_tokens = next(n for n in range(len(case.ids) + 1) if len(case.text(n)) >= end)
    text = whole[: end if case.include_stop else place]
    return Shown(text, case.ids[:num_tokens], tuple(range(num_tokens)), stop, (Cut(0, num_tokens),))


def shown(case: Case) -> Shown:
    """Through an answer of the front, which goes on getting tokens after a cut, as it would from steps in flight."""
    model = ServedModel("m", case.kind.vocabulary, limits.MAX_VOCABULARY, 4096, frozenset(), None, {})
    answer = Answer(model, _parsed(case))
    events, cuts, place = answer.take([Started("r", 0.0, 0)]), list[Cut](), 0
    for portion in case.portions:
        ids = case.ids[place : place + portion]
        events += answer.take([Committed("r", 0, place + nth, token) for nth, token in enumerate(ids)])
        cuts += answer.take_cuts()
        place += portion
    events += answer.take([Finished("r", 0, FinishReason.LENGTH, cuts[0].at if cuts else place, 0)])
    return _gathered(events, cuts)


def _parsed(case: Case) -> Parsed:
    return Parsed(
        spec=RequestSpec(id="r", prompt=case.prompt, n=1, stop_token_ids=frozenset(), max_tokens=len(case.ids)),
        label="r",
        stops=case.stops,
        include_stop=case.include_stop,
        skip_special_tokens=True,
        stream_interval=case.interval,
    )


def _gathered(events: list[Event], cuts: list[Cut]) -> Shown:
    pieces = [event for event in events if isinstance(event, Piece)]
    (end,) = (event for event in events if isinstance(event, End))
    indices = [piece.first_index + nth for piece in pieces for nth in range(len(piece.tokens))]
    return Shown(
        "".join(piece.text for piece in pieces),
        tuple(token for piece in pieces for token in piece.tokens),
        tuple(indices),
        end.branches[0].stop,
        tuple(cuts),
    )


def judge(case: Case, found: Findings) -> None:
    """Counts the case, and what is wrong with it."""
    right, ours = expected(case), shown(case)
    found.splits += 1
    found.stopped += right.stop is not None
    is_whole = right.stop is not None or case.kind.is_whole((*case.prompt, *case.ids))
    text = ours.text if is_whole else ours.text.rstrip(REPLACEMENT)
    before = found.num_wrong
    found.stray_replacement += text.count(REPLACEMENT) > right.text.count(REPLACEMENT)
    found.stop_leaks += len(text) > len(right.text) and text.startswith(right.text) and right.stop is not None
    found.stop_duplicates += right.stop is not None and text.count(right.stop) > right.text.count(right.stop)
    ids = (*case.prompt, *case.ids)
    is_decoded = not case.kind.is_whole(ids) or case.kind.vocabulary.decode(ids) == case.kind.text(ids)
    is_equal = (text, ours.tokens, ours.indices, ours.stop, ours.cuts) == (
        *(right.text, right.tokens, right.indices),
        *(right.stop, right.cuts),
    )
    found.different += not (is_equal and is_decoded)
    if found.num_wrong > before:
        found.problems.append(f"{case.prompt} {case.ids} {case.portions} {case.stops}: {ours} is not {right}")


def drawn(kind: Kind, number: int) -> Case:
    """The same for the same number. Every second answer goes on inside a text, every fourth ends inside one."""
    draw = random.Random(number)
    ids = kind.cut(draw, sample(draw, SCRIPTS[number % len(SCRIPTS)], MOST_CHARACTERS))
    start = draw.choice((0, draw.randrange(len(ids))))
    end = draw.choice((len(ids),) * 3 + (draw.randrange(start, len(ids)) + 1,))
    plain = Case(kind=kind, prompt=tuple(ids[:start]), ids=tuple(ids[start:end]), portions=())
    return Case(
        kind=kind,
        prompt=plain.prompt,
        ids=plain.ids,
        portions=_portions(draw, len(plain.ids)),
        stops=tuple(_stops(draw, plain.text())),
        include_stop=draw.random() < 0.5,
        interval=draw.choice((1, 1, 1, 2, 5)),
    )


def _portions(draw: random.Random, total: int) -> tuple[int, ...]:
    most, portions = draw.choice((1, 2, 5, 20)), list[int]()
    while sum(portions) < total:
        portions.append(min(draw.randint(1, most), total - sum(portions)))
    return tuple(portions)


def _stops(draw: random.Random, text: str) -> Iterator[str]:
    """Parts of the text, and texts that begin like one."""
    for _ in range(draw.choice((0, 0, 1, 1, 2, 3)) if text else 0):
        start = draw.randrange(len(text))
        part = text[start : start + draw.randint(1, 6)]
        yield draw.choice((part, part, part + "\u00a7", part[1:] + part[:1]))


def boundaries(kind: Kind, script: Script, number: int) -> Iterator[Case]:
    """A stop string in the middle of a text, whose tokens come in all portions that there are, with it and without."""
    draw = random.Random(number)
    ids = tuple(kind.cut(draw, script.sentence[:14], longest=1 + number % 3 * 4))
    plain = Case(kind=kind, ids=ids, portions=())
    middle = max(0, len(plain.text()) // 2 - 1)
    stop = plain.text()[middle : middle + draw.choice((1, 2, 3))]
    first = next(n for n in range(len(ids) + 1) if len(plain.text(n)) >= middle)
    last = next(n for n in range(len(ids) + 1) if len(plain.text(n)) >= middle + len(stop))
    num_boundaries = min(last - first, MOST_BOUNDARIES)
    for is_end in range(1 << num_boundaries):
        places = [0, *(first + nth for nth in range(num_boundaries) if is_end >> nth & 1), len(ids)]
        portions = tuple(after - before for before, after in pairwise(places))
        for include_stop in (False, True):
            yield Case(kind=kind, ids=ids, portions=portions, stops=(stop,), include_stop=include_stop)
