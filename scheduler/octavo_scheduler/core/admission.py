"""Who starts, or comes back, in this step: in order of policy, what fits, and nobody passed over too often."""

from collections import Counter

from octavo_scheduler.core.backoff import margin
from octavo_scheduler.core.draft import Draft
from octavo_scheduler.core.placement import ROW_TOKENS, Place, load, saved, serves, uncached
from octavo_scheduler.core.policy import jumped_by
from octavo_scheduler.core.prefix import Hit, find_page, find_prefix
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import RequestState, SequenceMove, SequenceState
from octavo_scheduler.core.tiers import bring_up, swap_in
from octavo_scheduler.core.waiting import Waiting, is_new
from octavo_scheduler.core.worker import Worker


class Admission:
    """Of one step of one worker."""

    def __init__(self, draft: Draft, waiting: Waiting, others: list[Worker], now: float) -> None:
        """`others`: the other workers that could take a sequence."""
        self.draft = draft
        self.worker = draft.worker
        self.waiting = waiting
        self.now = now
        self._hits: list[Hit] = []
        """The prefix of the sequence last looked at: looking again would cost long prompts as much again."""
        self.raised: Sequence | None = None
        """The candidate that goes first because it has waited longest."""
        self._promised: Counter[str] | None = None
        """Pages that the running sequences of each tenant may come to need; counted only where there is a limit."""
        self._others = others
        self._load = 0
        """Of this worker, with those that start in this step; known from when the places are."""
        self._places: list[Place] | None = None

    def admit(self) -> None:
        """Admits in order what fits; what does not fit is passed over a bounded number of times."""
        if not self.waiting and not self.worker.swapped:
            return
        passed: list[Sequence] = []
        full: set[str] = set()
        most_overtakes = self.worker.settings.max_overtakes
        room = self.worker.room
        if not self._has_place(room):
            return
        for sequence in self.candidates():
            if not self._has_place(room):
                return
            if sequence.faults or sequence.lacks_mask or not serves(self.worker, sequence):
                continue
            if self.better_place(sequence, room) is not None:
                if sequence.deferred_at is None:
                    sequence.deferred_at = self.now
                continue
            tenant = sequence.request.spec.tenant
            if tenant in full or not self.has_share(sequence):
                full.add(tenant)  # so that its shorter ones do not go before this one
                continue
            is_fresh = is_new(sequence)
            spare = room - (margin(self.worker, sequence) if self.worker.running else 0)
            needed = self.needed(sequence) if self.may_fit(sequence, spare) else room + 1
            if needed > spare or not self._start(sequence):
                if sequence.overtaken >= most_overtakes:
                    return
                passed.append(sequence)
                continue
            room -= needed + 1
            for other in dict.fromkeys(passed + (jumped_by(self.worker, sequence) if is_fresh else [])):
                other.overtaken += 1
            sequence.overtaken = 0
            if any(other.overtaken >= most_overtakes for other in passed):
                return

    def admit_suspect(self) -> None:
        """Admits the first sequence that met a failed step, if it fits."""
        suspects = [sequence for sequence in self.waiting.returning(self.worker) if sequence.faults]
        room = self.worker.room if suspects else 0
        for sequence in suspects:
            if self._can_start(sequence, room):
                self._start(sequence)
                return

    def candidates(self) -> list[Sequence]:
        """Whom to look at, in order."""
        self.raised = self.waiting.oldest(self.worker, self.now)
        return self.waiting.candidates(self.worker, self.raised, self.has_share)

    def _has_place(self, room: int) -> bool:
        """Whether anybody can come: with a slot and, for its last token, a page of its own."""
        return bool(self.draft.budget and self.worker.free_slots and room >= 1)

    def may_fit(self, sequence: Sequence, spare: int) -> bool:
        """A short look before `needed`: whether the last page that it would have to share is there to be shared."""
        worker = self.worker
        last = worker.num_pages(len(sequence.tokens)) - spare - 1
        if last < 0:
            return True
        if sequence.state is SequenceState.SWAPPED or last >= sequence.most_found // worker.page_size:
            return False
        if not worker.settings.prefix_cache or find_page(worker, sequence, 0) is None:
            return False
        hit = find_page(worker, sequence, last)
        return hit is not None and hit.pool is worker.device and worker.device.refs[hit.page] > 0

    def has_share(self, sequence: Sequence) -> bool:
        """Whether its tenant stays within its share of the pages even if all its sequences get as long as they may.

        A request with several branches is let in alone, whatever they come to.
        """
        worker = self.worker
        if worker.tenant_pages == worker.device.num_usable:
            return True
        promised = self.promised(sequence.request.spec.tenant)
        return not promised or promised + self.most_pages(sequence) <= worker.tenant_pages

    def promised(self, tenant: str) -> int:
        """Pages that the running sequences of a tenant may come to need."""
        if self._promised is None:
            self._promised = Counter()
            for running in self.worker.running:
                self._promised[running.request.spec.tenant] += self.most_pages(running)
        return self._promised[tenant]

    def promise(self, sequence: Sequence) -> None:
        """The sequence, of which `needed` was asked last, will be running, too."""
        num_known = max(sequence.computed, len(self._hits) * self.worker.page_size)
        self._load += ROW_TOKENS + len(sequence.tokens) - num_known
        if self._promised is not None:
            self._promised[sequence.request.spec.tenant] += self.most_pages(sequence)

    def most_pages(self, sequence: Sequence) -> int:
        """Pages that it may come to need, and those branches of its request that have not forked off yet."""
        longest = sequence.longest if sequence.max_tokens is not None else self.worker.capacity
        return self.worker.num_pages(longest - 1) * (1 + sequence.request.num_unborn)

    def _can_start(self, sequence: Sequence, room: int) -> bool:
        fits = self.needed(sequence) <= room
        return bool(self.worker.free_slots) and fits and self.is_placed_here(sequence, room)

    def is_placed_here(self, sequence: Sequence, room: int) -> bool:
        """Whether it can go on, and this worker can serve it and leaves it to no other."""
        return not sequence.lacks_mask and serves(self.worker, sequence) and self.better_place(sequence, room) is None

    def better_place(self, sequence: Sequence, room: int) -> Place | None:
        """The worker to which this one leaves the sequence, or None: it lies swapped out here, or is placed here."""
        if sequence.state is SequenceState.SWAPPED or not self._others:
            return None
        longest = sequence.longest
        fitting = [
            place for place in self.places if longest <= place.worker.capacity and serves(place.worker, sequence)
        ]
        if sequence.failed_on:
            others = (place for place in fitting if place.takes_plans)
            return next(others, None) if sequence.failed_on == self.worker.id else None
        num_own = uncached(self.worker, sequence, self.worker.page_size) if fitting else 0
        return next((place for place in fitting if self._is_better(place, sequence, num_own, room)), None)

    @property
    def places(self) -> list[Place]:
        """Of the other workers that could take a sequence. Looked up when the first is asked for: often nobody has room."""
        if self._places is None:
            self._load, self._places = load(self.worker), [Place.of(other, self.now) for other in self._others]
        return self._places

    def _is_better(self, place: Place, sequence: Sequence, num_own: int, room: int) -> bool:
        """Whether a sequence of which this worker would have to compute so many tokens is to wait for another one.

        That takes plans now, or holds more of its prefix, or is what it waits for already."""
        num_there = uncached(place.worker, sequence, self.worker.page_size)
        seconds = saved(self.worker, self._load, num_own, place, num_there)
        if seconds == 0:
            return place.takes_plans and place.room > room * self.worker.page_size
        if seconds < 0 or place.room < num_there:
            return False
        if sequence.deferred_at is None:
            return place.takes_plans or (num_there < num_own and seconds > place.answers_in)
        return self.now < sequence.deferred_at + seconds

    def needed(self, sequence: Sequence) -> int:
        """Pages that admission takes from those to be had: all it needs but the shared ones that others hold already."""
        device = self.worker.device
        self._hits = find_prefix(self.worker, sequence) if sequence.state is SequenceState.WAITING else []
        held = sum(hit.pool is device and device.refs[hit.page] > 0 for hit in self._hits)
        return self.worker.num_pages(len(sequence.tokens)) - held

    def _start(self, sequence: Sequence) -> bool:
        """Of the sequence that `needed` has just been asked about; False when it cannot be moved back."""
        worker = self.worker
        if sequence.state is SequenceState.SWAPPED:
            if not swap_in(worker, sequence, self.draft.plan):
                return False
        else:
            self.waiting.discard(sequence)
            sequence.deferred_at = None
            sequence.worker = worker
            sequence.move(SequenceMove.ADMIT)
            self._share_prefix(sequence)
            if sequence.max_tokens is None:
                sequence.max_tokens = worker.capacity - sequence.num_prompt
        self.promise(sequence)
        self.waiting.admitted(sequence, self.now, is_raised=sequence is self.raised)
        self.draft.first_row(sequence)
        return True

    def _share_prefix(self, sequence: Sequence) -> None:
        sequence.table = bring_up(self.worker, self._hits, self.draft.plan)
        sequence.computed = sequence.planned = len(self._hits) * self.worker.page_size
        if sequence.request.state is RequestState.QUEUED:
            sequence.request.num_cached = sequence.computed
