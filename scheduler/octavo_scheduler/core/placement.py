"""Which worker a sequence goes to, and which one is worth a move.

The *load* of a worker, in tokens: what its running sequences have still to compute, and ROW_TOKENS for each sequence it has,
which stands for its share of the steps to come. A sequence goes where load and those of its tokens that are not cached,
divided by the prefill rate, come to least: to the worker that holds its prefix, unless that one is so much fuller that
computing it anew elsewhere is sooner. Where two are alike, to the one with more room. One that has to answer a plan first is
waited for only if it holds more of the prefix, or by a sequence that waits for it already, and nobody is waited for longer
than it would have saved: not at all, if its steps take longer than that.

A sequence is worth a move when its tokens and its own share of the load are less than half of what the loads differ by: so
the worker that it leaves stays the fuller one, and nothing goes round in circles. By the same `saved` admission would leave
it to the other worker, and that one lets it in (`has_room`), so that none is let go only to be started again.
"""

from typing import NamedTuple

from octavo_scheduler.core.backoff import margin
from octavo_scheduler.core.policy import warmth
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceState
from octavo_scheduler.core.worker import Worker

ROW_TOKENS = 32
"""What a sequence adds to a worker's load besides what it has to compute. One with fewer tokens to go is not moved."""


class Place(NamedTuple):
    """A worker as it stood when a plan was begun."""

    worker: Worker
    room: int
    """In tokens, as pages of workers may differ in size."""
    load: int
    takes_plans: bool
    """Now. Otherwise it has to answer one first."""
    answers_in: float
    """Seconds that this takes, about."""

    @classmethod
    def of(cls, worker: Worker, now: float) -> "Place":
        takes_plans = len(worker.in_flight) < worker.settings.plans_in_flight
        answers_in = 0.0 if takes_plans else worker.answers_in(now)
        return cls(worker, worker.room * worker.page_size, load(worker), takes_plans, answers_in)


def serves(worker: Worker, sequence: Sequence) -> bool:
    """Whether the worker's version knows what the sequence asks for."""
    return worker.knows_options or not sequence.request.spec.needs_options


def load(worker: Worker) -> int:
    """In tokens. Rows that are planned count until they are done."""
    behind = sum(len(sequence.tokens) - sequence.computed for sequence in worker.running)
    return behind + ROW_TOKENS * (len(worker.running) + len(worker.swapped))


def uncached(worker: Worker, sequence: Sequence, page_size: int) -> int:
    """Tokens that a worker would have to compute. Only prefixes in pages of this size are looked for: keys are made for one
    size at a time, and making them costs as much as a long prompt is long."""
    num_cached = warmth(worker, sequence) * page_size if worker.page_size == page_size else 0
    return len(sequence.tokens) - num_cached if worker.settings.prefix_cache else len(sequence.tokens)


def saved(worker: Worker, load: int, num_uncached: int, place: Place, num_uncached_there: int) -> float:
    """Seconds that a sequence would start sooner at the other place than here, where the load is `load`."""
    here, there = load + num_uncached, place.load + num_uncached_there
    return here / worker.prefill_rate - there / place.worker.prefill_rate


def has_room(place: Place, sequence: Sequence) -> bool:
    """Whether a sequence would be let in there, and could go on for a while."""
    worker, num_tokens = place.worker, len(sequence.tokens)
    let_in = worker.num_pages(num_tokens) + (margin(worker, sequence) if worker.running else 0)
    return place.room >= max(let_in, worker.num_pages(num_tokens + ROW_TOKENS)) * worker.page_size


def target(worker: Worker, sequence: Sequence, places: list[Place]) -> Worker | None:
    """The least loaded worker to which a sequence of this one is worth a move, to be computed there from its beginning.

    Never one that would start it later than this one could start it anew: there, admission would not leave it.
    """
    is_nearly_done = sequence.max_tokens is not None and sequence.max_tokens - sequence.num_generated < ROW_TOKENS
    if sequence.faults or is_nearly_done or sequence.request.num_unborn:
        return None
    num_tokens, here = len(sequence.tokens), load(worker)
    fitting = [
        place
        for place in places
        if place.worker.free_slots
        and serves(place.worker, sequence)
        and sequence.longest <= place.worker.capacity
        and has_room(place, sequence)
    ]
    best = min(fitting, key=lambda place: (place.load, place.worker.id), default=None)
    if best is None or here - best.load <= 2 * (num_tokens + ROW_TOKENS):
        return None
    own = ROW_TOKENS + (num_tokens - sequence.computed if sequence.state is SequenceState.RUNNING else 0)
    num_own, num_there = (uncached(one, sequence, worker.page_size) for one in (worker, best.worker))
    return best.worker if saved(worker, here - own, num_own, best, num_there) > best.answers_in else None
