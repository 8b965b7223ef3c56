"""Who starts, or comes back, in this step: in order of policy, what fits, and nobody passed over too often."""

from collections import Counter

from octavo_scheduler.core.backoff import growth
from octavo_scheduler.core.draft import Draft
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
        """`others`: the other workers that could take a sequence right now."""
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
        self.others = (
            [(other.capacity, other.room * other.page_size, other.knows_options) for other in others] if waiting else []
        )

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
            if sequence.faults or not self.is_placed_here(sequence, room):
                continue
            tenant = sequence.request.spec.tenant
            if tenant in full or not self.has_share(sequence):
                full.add(tenant)  # so that its shorter ones do not go before this one
                continue
            is_fresh = is_new(sequence)
            spare = room - (self.margin(sequence) if self.worker.running else 0)
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

    def margin(self, sequence: Sequence) -> int:
        """Pages that have to stay free beyond its need, unless it would run alone."""
        return self.worker.reserve + self.growth(sequence)

    def growth(self, sequence: Sequence) -> int:
        """Pages that it shall have room to grow into when it comes back."""
        return 0 if is_new(sequence) else growth(self.worker, sequence)

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
        """The sequence will be running, too."""
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
        """Whether it lies swapped out here, or this worker has the most room of those that can hold it to its end."""
        if sequence.state is SequenceState.SWAPPED:
            return True
        if sequence.request.spec.needs_options and not self.worker.knows_options:
            return False
        here, rooms = room * self.worker.page_size, self.rooms_elsewhere(sequence)
        if sequence.failed_on == self.worker.id and rooms:
            return False
        return sequence.failed_on != "" or all(here >= there for there in rooms)

    def rooms_elsewhere(self, sequence: Sequence) -> list[int]:
        """Tokens that there is room for on each other worker that could serve it."""
        longest, needs_options = sequence.longest, sequence.request.spec.needs_options
        return [there for capacity, there, knows in self.others if longest <= capacity and (knows or not needs_options)]

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
