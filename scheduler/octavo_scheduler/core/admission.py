"""Who starts, or comes back, in this step: in order of policy, what fits, and nobody passed over too often."""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice

from octavo_scheduler.core.draft import Draft
from octavo_scheduler.core.prefix import find_prefix
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import RequestState, SequenceMove, SequenceState, WorkerState
from octavo_scheduler.core.tiers import bring_up, swap_in
from octavo_scheduler.core.worker import SequenceQueue, Worker

ADMISSION_WINDOW = 64
"""Waiting sequences looked at in one step."""


class Admission:
    """Of one step of one worker."""

    def __init__(self, draft: Draft, waiting: SequenceQueue, others: list[Worker]) -> None:
        """`others`: the other workers that could take a sequence right now."""
        self.draft = draft
        self.worker = draft.worker
        self.waiting = waiting
        self.others = [(other.capacity, other.room * other.page_size) for other in others] if waiting else []

    def admit(self) -> None:
        """Admits in order what fits; what does not fit is passed over a bounded number of times."""
        passed: list[Sequence] = []
        room = self.worker.room
        for sequence in list(islice(self.candidates(), ADMISSION_WINDOW)):
            if not self.draft.budget or not self.worker.free_slots or room < 1:
                return  # whoever comes needs a slot and, for its last token, a page of its own
            if sequence.faults or not self.is_placed_here(sequence, room):
                continue
            needed = self.needed(sequence)
            if needed > room or not self._start(sequence):
                if sequence.overtaken >= self.worker.settings.max_overtakes:
                    return
                passed.append(sequence)
                continue
            room -= needed + 1
            for other in passed:
                other.overtaken += 1
            sequence.overtaken = 0

    def admit_suspect(self) -> None:
        """Admits the first sequence that met a failed step, if it fits."""
        room = self.worker.room
        for sequence in islice(self.candidates(), ADMISSION_WINDOW):
            if sequence.faults and self._can_start(sequence, room):
                self._start(sequence)
                return

    def candidates(self) -> Iterator[Sequence]:
        """In order. A draining worker takes back what it swapped out and nothing else."""
        capacity = self.worker.capacity
        is_ready = self.worker.state is WorkerState.READY
        waiting: Iterable[Sequence] = (s for s in self.waiting if s.longest <= capacity) if is_ready else ()
        return merge(self.worker.swapped, waiting, key=lambda sequence: sequence.order)

    def _can_start(self, sequence: Sequence, room: int) -> bool:
        fits = self.needed(sequence) <= room
        return bool(self.worker.free_slots) and fits and self.is_placed_here(sequence, room)

    def is_placed_here(self, sequence: Sequence, room: int) -> bool:
        """Whether it lies swapped out here, or this worker has the most room of those that can hold it to its end."""
        if sequence.state is SequenceState.SWAPPED:
            return True
        longest = sequence.longest
        here = room * self.worker.page_size
        rooms = [there for capacity, there in self.others if longest <= capacity]
        if sequence.failed_on == self.worker.id and rooms:
            return False
        return sequence.failed_on != "" or all(here >= there for there in rooms)

    def needed(self, sequence: Sequence) -> int:
        """Pages that admission takes from those to be had: all it needs but the shared ones that others hold already."""
        held, device = 0, self.worker.device
        if sequence.state is SequenceState.WAITING:
            held = sum(hit.pool is device and device.refs[hit.page] > 0 for hit in find_prefix(self.worker, sequence))
        return self.worker.num_pages(len(sequence.tokens)) - held

    def _start(self, sequence: Sequence) -> bool:
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
        self.draft.first_row(sequence)
        return True

    def _share_prefix(self, sequence: Sequence) -> None:
        hits = find_prefix(self.worker, sequence)
        sequence.table = bring_up(self.worker, hits, self.draft.plan)
        sequence.computed = sequence.planned = len(hits) * self.worker.page_size
        if sequence.request.state is RequestState.QUEUED:
            sequence.request.num_cached = sequence.computed
