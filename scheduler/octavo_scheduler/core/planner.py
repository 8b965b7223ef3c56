"""One step of one worker.

One rule decides it: each sequence's computed tokens catch up with its known tokens within the step's token budget. Prefill,
chunked prefill, decode and recomputation after a drop are all this rule. Order: running rows first (those one token
behind before those with more to catch up, so that a long prompt never holds up a stream), then admissions.

When pages run out, the running sequence that is last in order gives up its own, never one that comes before the needy
one. A victim with a row in flight gets no further rows and is preempted after the result, with its token committed.
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice

from octavo_scheduler.core.plan import NewSlot, StepPlan
from octavo_scheduler.core.preempt import prefers_swap, swap_in, swap_out
from octavo_scheduler.core.prefix import find_prefix
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import RequestState, SequenceMove, SequenceState, WorkerState
from octavo_scheduler.core.worker import SequenceQueue, Worker

ADMISSION_WINDOW = 64
"""Waiting sequences looked at in one step."""


class Planner:
    """Builds one plan. Makes the changes of pools and sequences that the plan stands for."""

    def __init__(self, worker: Worker, waiting: SequenceQueue, others: list[Worker]) -> None:
        """`others`: the other workers that could take a sequence right now."""
        self.worker = worker
        self.waiting = waiting
        self.others = [(other.capacity, other.room * other.page_size) for other in others] if waiting else []
        self.settings = worker.settings
        self.budget = worker.budget
        self.max_chunk = self.settings.max_chunk or worker.budget
        self.plan = StepPlan(worker.id, worker.step + 1, full=worker.full)
        self.has_preempted = False

    def build(self) -> StepPlan | None:
        """The plan, entered into the worker's record; None when there is nothing to say."""
        worker = self.worker
        turns = (self._run_together, self._run_suspect) if worker.was_alone else (self._run_suspect, self._run_together)
        for turn in turns:
            turn()
            if self.plan.rows:
                worker.was_alone = turn == self._run_suspect
                break
        if worker.full or not self.plan.is_empty or not worker.in_flight:
            self.plan.freed_slots, worker.freed_slots = worker.freed_slots, []
        if self.plan.is_empty:
            return None
        worker.step = self.plan.step
        worker.full = False
        worker.in_flight.append(self.plan)
        self._measure()
        return self.plan

    def _run_suspect(self) -> None:
        """A row for the first sequence that met a failed step. Every second plan is such a one's own."""
        for sequence in [s for s in self.worker.running if s.faults and not s.is_evicting]:
            if (behind := sequence.uncomputed) and self._row(sequence, behind):
                return
        for sequence in islice(self._candidates(), ADMISSION_WINDOW):
            if sequence.faults and self._can_start(sequence, self.worker.room):
                self._start(sequence)
                return

    def _run_together(self) -> None:
        self._run()
        if not self.has_preempted:
            self._admit()

    def _run(self) -> None:
        decoding: list[tuple[Sequence, int]] = []
        catching_up: list[tuple[Sequence, int]] = []
        evicting: list[Sequence] = []
        for sequence in self.worker.running:
            if sequence.is_evicting:
                evicting.append(sequence)
            elif sequence.faults or not (behind := sequence.uncomputed):
                continue
            else:
                (decoding if behind == 1 else catching_up).append((sequence, behind))
        for sequence, behind in (*decoding, *catching_up):
            if sequence.state is SequenceState.RUNNING and not sequence.is_evicting and self.budget:
                self._row(sequence, behind)
        for sequence in evicting:
            if sequence.state is SequenceState.RUNNING and not sequence.rows_in_flight:
                sequence.is_evicting = False
                if (behind := sequence.uncomputed) and self.budget and not sequence.faults:
                    self._row(sequence, behind)

    def _row(self, sequence: Sequence, behind: int) -> bool:
        """Gives a running sequence, `behind` by so many tokens, its row, if pages can be had."""
        num_tokens = min(behind, self.budget, self.max_chunk)
        lacking = self.worker.num_pages(sequence.planned + num_tokens) - len(sequence.table)
        if lacking > 0:
            pages = self._pages(sequence, lacking)
            if pages is None:
                return False
            sequence.table += pages
            self.plan.growth.append((sequence.slot, pages))
            if self.worker.joined.needs_zeroed_pages:
                self.plan.zero += pages
        self._enter_row(sequence, num_tokens, behind)
        return True

    def _enter_row(self, sequence: Sequence, num_tokens: int, behind: int) -> None:
        plan = self.plan
        samples = num_tokens == behind
        plan.rows.append(sequence)
        plan.row_slots.append(sequence.slot)
        plan.row_tokens.append(num_tokens)
        plan.row_samples.append(samples)
        sequence.planned += num_tokens
        sequence.pending += samples
        sequence.rows_in_flight += 1
        sequence.last_step = plan.step
        self.worker.held_tokens += num_tokens
        self.budget -= num_tokens

    def _pages(self, sequence: Sequence, count: int) -> list[int] | None:
        """Takes pages for a running sequence, from victims that come after it if need be."""
        while (pages := self.worker.device.take(count)) is None:
            victim = self._victim(after=sequence)
            if victim is None:
                return None
            if victim.rows_in_flight:
                victim.is_evicting = True
                return None
            self._preempt(victim)
        return pages

    def _victim(self, after: Sequence) -> Sequence | None:
        for victim in reversed(self.worker.running):
            if victim is after:
                return None
            if victim.table:
                return victim
        return None

    def _preempt(self, victim: Sequence) -> None:
        self.has_preempted = True
        victim.request.preemptions += 1
        worker = self.worker
        if prefers_swap(worker, victim) and swap_out(worker, victim, self.plan):
            worker.num_swaps += 1
            return
        worker.num_drops += 1
        worker.release(victim)
        victim.move(SequenceMove.DROP)
        self.waiting.add(victim)

    def _candidates(self) -> Iterator[Sequence]:
        """In order. A draining worker takes back what it swapped out and nothing else."""
        capacity = self.worker.capacity
        is_ready = self.worker.state is WorkerState.READY
        waiting: Iterable[Sequence] = (s for s in self.waiting if s.longest <= capacity) if is_ready else ()
        return merge(self.worker.swapped, waiting, key=lambda sequence: sequence.order)

    def _admit(self) -> None:
        """Admits in order what fits; what does not fit is passed over a bounded number of times."""
        passed: list[Sequence] = []
        room = self.worker.room
        for sequence in list(islice(self._candidates(), ADMISSION_WINDOW)):
            if not self.budget or not self.worker.free_slots or room < 1:
                return  # whoever comes needs a slot and, for its last token, a page of its own
            if sequence.faults or not self._is_placed_here(sequence, room):
                continue
            needed = self._needed(sequence)
            if needed > room or not self._start(sequence):
                if sequence.overtaken >= self.settings.max_overtakes:
                    return
                passed.append(sequence)
                continue
            room -= needed + 1
            for other in passed:
                other.overtaken += 1
            sequence.overtaken = 0

    def _is_placed_here(self, sequence: Sequence, room: int) -> bool:
        """Whether it lies swapped out here, or this worker has the most room of those that can hold it to its end."""
        if sequence.state is SequenceState.SWAPPED:
            return True
        longest = sequence.longest
        here = room * self.worker.page_size
        rooms = [there for capacity, there in self.others if longest <= capacity]
        if sequence.failed_on == self.worker.id and rooms:
            return False
        return sequence.failed_on != "" or all(here >= there for there in rooms)

    def _can_start(self, sequence: Sequence, room: int) -> bool:
        fits = self._needed(sequence) <= room
        return bool(self.worker.free_slots) and fits and self._is_placed_here(sequence, room)

    def _needed(self, sequence: Sequence) -> int:
        """Pages that admission takes from those to be had: all it needs but the shared ones that others hold already."""
        held = 0
        if sequence.state is SequenceState.WAITING:
            held = sum(1 for page in find_prefix(self.worker, sequence) if self.worker.device.refs[page])
        return self.worker.num_pages(len(sequence.tokens)) - held

    def _start(self, sequence: Sequence) -> bool:
        worker = self.worker
        is_back = sequence.state is SequenceState.SWAPPED
        if is_back and not swap_in(worker, sequence, self.plan):
            return False
        if not is_back:
            self.waiting.discard(sequence)
            sequence.worker = worker
            sequence.move(SequenceMove.ADMIT)
            self._share_prefix(sequence)
            if sequence.max_tokens is None:
                sequence.max_tokens = worker.capacity - sequence.num_prompt
        sequence.slot = worker.free_slots.pop()
        worker.running.add(sequence)
        worker.held_tokens += sequence.planned
        self.plan.new_slots.append(NewSlot(sequence.slot, sequence, tuple(sequence.tokens), sequence.computed))
        self._first_row(sequence)
        return True

    def _share_prefix(self, sequence: Sequence) -> None:
        pages = find_prefix(self.worker, sequence)
        self.worker.device.share(pages)
        sequence.table = pages
        sequence.computed = sequence.planned = len(pages) * self.worker.page_size
        if sequence.request.state is RequestState.QUEUED:
            sequence.num_cached = sequence.computed

    def _first_row(self, sequence: Sequence) -> None:
        """The row of a sequence just admitted; `room` has made sure of its pages. Its table is new to the worker."""
        behind = sequence.uncomputed
        num_tokens = min(behind, self.budget, self.max_chunk)
        lacking = self.worker.num_pages(sequence.planned + num_tokens) - len(sequence.table)
        pages = self.worker.device.take(lacking)
        assert pages is not None, "admission checks room before it starts a sequence"
        sequence.table += pages
        self.plan.growth.append((sequence.slot, list(sequence.table)))
        if self.worker.joined.needs_zeroed_pages:
            self.plan.zero += pages
        self._enter_row(sequence, num_tokens, behind)

    def _measure(self) -> None:
        worker = self.worker
        held = worker.device.num_held * worker.page_size
        for utilisation in (worker.utilisation, worker.saturated) if self.waiting else (worker.utilisation,):
            utilisation.filled += worker.filled_slots
            utilisation.held += held
