"""What stands between a sequence and a worker, in words with numbers. Asks only.

The next admission of the worker is gone through as `Admission.admit` would, with the same questions, up to the sequence or
to what stops admission before it. A sequence that is said to start with the next plan does so; where that is not certain
(because a prefix that is found now may be evicted by those before it), the words are weaker.
"""

from collections import Counter
from dataclasses import dataclass, field

from octavo_scheduler.core.admission import Admission
from octavo_scheduler.core.backoff import growth, margin
from octavo_scheduler.core.core import Core
from octavo_scheduler.core.draft import Draft
from octavo_scheduler.core.placement import Place, serves
from octavo_scheduler.core.policy import jumped_by
from octavo_scheduler.core.prefix import Hit, find_prefix, full_pages
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceState, WorkerState
from octavo_scheduler.core.turns import Turns
from octavo_scheduler.core.waiting import is_new
from octavo_scheduler.core.words import many
from octavo_scheduler.core.worker import Worker


@dataclass
class _Room:
    """What admission can still hand out, if those before find the prefixes that are there now.

    Once more pages are taken than are free, cached ones are evicted. It is not sure any more when a prefix that counted may
    be among them.
    """

    budget: int
    slots: int
    pages: int
    free: int
    num_running: int
    scores: int
    is_sure: bool = True
    has_late_branches: bool = False
    """Branches fork off in this step from what runs and have to wait, before others: they cannot fork here."""
    shared: set[int] = field(default_factory=set)
    """Cached pages that those before have come to hold."""
    started: set[Sequence] = field(default_factory=set)
    overtaken: Counter[Sequence] = field(default_factory=Counter)
    """How often those that started passed over another, in this step."""

    def take_row(self, sequence: Sequence, first: int, most: int) -> int:
        """Tokens of a row from the one at `first` on."""
        num_tokens = sequence.cut_row(first, min(most, self.budget), self.scores)
        self.scores = max(self.scores - len(sequence.prompt_scores(first, num_tokens)), 0)
        self.budget -= num_tokens
        return num_tokens


class Outlook:
    """What the next admission of one worker has for a sequence that does not run."""

    def __init__(self, core: Core, worker: Worker, now: float) -> None:
        self.core = core
        self.worker = worker
        self.settings = worker.settings
        self.max_chunk = self.settings.max_chunk or worker.budget
        self.admission = Admission(Draft(worker, core.waiting), core.waiting, core.others(worker), now)

    def of(self, sequence: Sequence) -> str:
        """Why the sequence does not start on this worker, or that it does."""
        worker, is_waiting = self.worker, sequence.state is SequenceState.WAITING
        if is_waiting and worker.state is not WorkerState.READY:
            return f"{worker.id} is {worker.state.name.lower()}"
        if is_waiting and sequence.longest > worker.capacity:
            return f"{worker.id} can hold {worker.capacity} tokens, and it may become {sequence.longest} long"
        if sequence.lacks_mask:
            return "what may come next in its answer is being worked out"
        if sequence.faults:
            return self._suspect(sequence)
        room = self._after_running()
        if room is None:
            left = many(worker.device.num_available, "page")
            return f"the running sequences of {worker.id} need more than the {left} left for them"
        turns = Turns(self.admission)
        if sequence not in turns.candidates:
            return turns.not_offered(sequence) + _unless(room)
        if obstacle := self._exhausted(room):
            return obstacle + turns.words(sequence)
        room.is_sure = room.free >= 0 or not turns.has_preferred()
        return self._in_turn(sequence, turns, room) + _unless(room) + turns.words(sequence)

    def _in_turn(self, sequence: Sequence, turns: Turns, room: _Room) -> str:
        """Goes through the candidates in order, as far as the sequence."""
        passed: list[Sequence] = []
        full: dict[str, Sequence] = {}
        """The first of each tenant that is beyond its share."""
        for candidate in turns.before(sequence):
            if obstacle := self._exhausted(room):
                return obstacle
            if candidate.faults or not self.admission.is_placed_here(candidate, room.pages):
                continue
            tenant = candidate.request.spec.tenant
            if tenant in full or not self.admission.has_share(candidate):
                full.setdefault(tenant, candidate)
                continue
            if self._fits(candidate, room):
                self._start(candidate, room, passed)
            else:
                passed.append(candidate)
            for other in passed:
                if (times := other.overtaken + room.overtaken[other]) >= self.settings.max_overtakes:
                    return (
                        f"{self.worker.id} keeps its room for request {other.request.spec.id}, which will have been "
                        f"passed over {many(times, 'time')}"
                    )
        if obstacle := self._exhausted(room):
            return obstacle
        if not serves(self.worker, sequence):
            return f"{self.worker.id} is of a version that does not know what it asks for"
        if (place := self.admission.better_place(sequence, room.pages)) is not None:
            return self._elsewhere(place, room)
        if sequence.request.spec.tenant in full or not self.admission.has_share(sequence):
            return turns.beyond_share(full.get(sequence.request.spec.tenant, sequence), sequence)
        return self._verdict(sequence, room)

    def _elsewhere(self, place: Place, room: _Room) -> str:
        """Why the sequence goes to another worker."""
        here, there = self.worker, place.worker
        rooms = f"{here.id} has room for {room.pages * here.page_size} tokens, {there.id} for {place.room}"
        return f"{there.id} is to have it, where it is computed sooner or has more room ({rooms})"

    def _fits(self, sequence: Sequence, room: _Room) -> bool:
        spare = room.pages - self._margin(sequence, room)
        is_shared = self._num_shared(sequence, room) > 0
        room.is_sure &= room.free >= 0 or not is_shared
        return self._needed(sequence, room) <= spare and (is_shared or self.admission.may_fit(sequence, spare))

    def _margin(self, sequence: Sequence, room: _Room) -> int:
        """What has to stay free beyond its need."""
        return margin(self.worker, sequence) if room.num_running else 0

    def _needed(self, sequence: Sequence, room: _Room) -> int:
        return self.admission.needed(sequence) - self._num_shared(sequence, room)

    def _start(self, candidate: Sequence, room: _Room, passed: list[Sequence]) -> None:
        """Takes from the room what a first row takes, forks included."""
        prefix = self._prefix(candidate)
        needed = self._needed(candidate, room)
        room.shared.update(hit.page for hit in prefix if hit.pool is self.worker.device)
        room.is_sure &= room.free >= 0 or not prefix
        is_waiting = candidate.state is SequenceState.WAITING
        first = len(prefix) * self.worker.page_size if is_waiting else candidate.computed
        behind = len(candidate.tokens) - first
        num_tokens = room.take_row(candidate, first, min(behind, self.max_chunk))
        room.pages -= needed + 1
        room.free -= needed
        room.slots -= 1
        room.num_running += 1
        room.started.add(candidate)
        jumped = jumped_by(self.worker, candidate, room.started) if is_new(candidate) else []
        room.overtaken.update(list(dict.fromkeys(passed + jumped)))
        self.admission.promise(candidate)
        if num_tokens == behind:
            room.slots -= self._num_forks(candidate, room)

    def _exhausted(self, room: _Room) -> str | None:
        """What nobody can start without."""
        worker = self.worker
        if room.slots < 1:
            num_slots = len(worker.free_slots) + len(worker.running)
            return f"all {num_slots} slots of {worker.id} are taken"
        if room.budget < 1:
            return f"the {worker.budget} tokens of a step of {worker.id} are used up"
        return f"{worker.id} has no page to spare ({self._pages(room)})" if room.pages < 1 else None

    def _verdict(self, sequence: Sequence, room: _Room) -> str:
        worker = self.worker
        if not self._fits(sequence, room):
            return self._lacking(sequence, room, self._margin(sequence, room) > 0)
        if not self.core.takes_plans(worker):
            return f"fits on {worker.id}, which looks again when a plan comes back ({len(worker.in_flight)} in flight)"
        if self._has_suspects() and not worker.was_alone:
            return f"fits on {worker.id}, after a plan that belongs to a request that met a failed step"
        if _unless(room):
            return f"fits on {worker.id}"
        spare = room.pages - self._margin(sequence, room)
        needed = many(self._needed(sequence, room), "page")
        return f"starts with the next plan of {worker.id} ({needed} of {spare} that it can give)"

    def _suspect(self, sequence: Sequence) -> str:
        worker, met = self.worker, f"{many(sequence.faults, 'failed step')} of {self.settings.max_faults}"
        room = self._room()
        if not room.slots:
            return f"{self._exhausted(room)}, and it met {met}"
        if self.admission.better_place(sequence, room.pages) is not None:
            return f"{worker.id} failed with it last, and another worker is to try ({met})"
        if self.admission.needed(sequence) > room.pages:
            return f"{self._lacking(sequence, room, has_margin=False)}, and it met {met}"
        return f"fits on {worker.id}, which gives it every second plan as its own, since it met {met}"

    def _lacking(self, sequence: Sequence, room: _Room, has_margin: bool) -> str:
        needed = many(self._needed(sequence, room), "page")
        reserve = self.worker.reserve if has_margin else 0
        numbers = self._pages(room)
        if reserve:
            numbers += f", {reserve} in reserve since sequences were preempted lately"
        if has_margin and (num_ahead := growth(self.worker, sequence)):
            needed += f" and {num_ahead} to grow into, since it was preempted"
        return f"needs {needed}, {self.worker.id} can give {max(room.pages - reserve, 0)} ({numbers})"

    def _pages(self, room: _Room) -> str:
        pool = self.worker.device
        promised = pool.num_available - self.worker.room
        numbers = f"of {pool.num_usable}: {pool.num_held} held, {pool.num_available} free or cached"
        if pool.num_fenced:
            numbers += f", {pool.num_fenced} fenced"
        if promised:
            numbers += f"; {promised} promised to running sequences"
        if taken := self.worker.room - room.pages:
            numbers += f", {taken} to the rows of this step and to those before it"
        return numbers

    def _room(self) -> _Room:
        worker = self.worker
        return _Room(
            worker.budget,
            len(worker.free_slots),
            worker.room,
            worker.device.num_free,
            len(worker.running),
            worker.joined.max_prompt_scores,
        )

    def _after_running(self) -> _Room | None:
        """What the rows of running sequences leave over; None when they lack pages themselves."""
        worker = self.worker
        room = self._room()
        num_available = worker.device.num_available
        num_copied: Counter[int] = Counter()
        eager = [
            s for s in worker.running if s.uncomputed and not s.faults and not (s.is_evicting and s.rows_in_flight)
        ]
        if worker.is_gathering(eager):
            eager = []
        for sequence in sorted(eager, key=lambda s: (s.is_evicting, s.uncomputed > 1)):
            num_tokens = room.take_row(sequence, sequence.planned, min(sequence.uncomputed, self.max_chunk))
            if not num_tokens:
                break
            last_page = sequence.table[-1]
            is_shared = bool(worker.shared_gaps) and worker.shares_last_page(sequence)
            copies = is_shared and worker.device.refs[last_page] - num_copied[last_page] > 1
            num_copied[last_page] += copies
            lacking = worker.num_pages(sequence.planned + num_tokens) - len(sequence.table) + copies
            num_available -= lacking
            room.free -= lacking
            if num_available < 0:
                return None
            room.pages -= copies
            if num_tokens == sequence.uncomputed:
                self._sample(sequence, room)
        return room

    def _sample(self, sequence: Sequence, room: _Room) -> None:
        """A running sequence will know one token more, and have forked; each of these may need a page for it, soon."""
        num_known = len(sequence.tokens) + sequence.pending
        num_forks = self._num_forks(sequence, room)
        room.has_late_branches |= not self.worker.can_fork(sequence.request) and sequence.request.num_unborn > 0
        num_pages = self.worker.num_pages(num_known + 1) - self.worker.num_pages(num_known)
        room.pages -= num_pages * (1 + num_forks) + num_forks
        room.slots -= num_forks

    def _num_forks(self, sequence: Sequence, room: _Room) -> int:
        """Branches that find a slot when the sequence's first token is to be sampled."""
        return min(sequence.request.num_unborn, room.slots) if self.worker.can_fork(sequence.request) else 0

    def _has_suspects(self) -> bool:
        returning = self.core.waiting.returning(self.worker)
        return any(sequence.faults for sequence in (*self.worker.running, *returning))

    def _num_shared(self, sequence: Sequence, room: _Room) -> int:
        """Pages that it need not take since those before it have come to hold them."""
        if sequence.state is not SequenceState.WAITING:
            return 0
        device = self.worker.device
        hits = self._prefix(sequence)
        return sum(hit.pool is device and hit.page in room.shared and not device.refs[hit.page] for hit in hits)

    def _prefix(self, sequence: Sequence) -> list[Hit]:
        """Pages that the sequence would share, or copy from the host tier."""
        worker = self.worker
        if sequence.state is SequenceState.WAITING:
            return find_prefix(worker, sequence)
        known = ((content, worker.device.find(content)) for content in full_pages(worker, sequence, sequence.computed))
        return [Hit(worker.device, page, content) for content, page in known if page is not None]


def _unless(room: _Room) -> str:
    if room.has_late_branches:
        return ", unless branches that fork off in this step, and wait, take the room"
    return "" if room.is_sure else ", unless a cached prefix is evicted before"
