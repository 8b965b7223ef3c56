"""A plan while it is being made: rows, the pages they need, and whoever has to give up pages for them.

When pages run out, the running sequence that is last in order gives up its own, never one that comes before the needy
one. A victim with a row in flight gets no further rows and is preempted after the result, with its token committed.
"""

from octavo_scheduler.core.plan import NewSlot, StepPlan
from octavo_scheduler.core.preempt import prefers_swap, swap_out
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceMove
from octavo_scheduler.core.worker import SequenceQueue, Worker


class Draft:
    """Makes the changes of pools and sequences that the plan stands for. `budget`: tokens that still fit."""

    def __init__(self, worker: Worker, waiting: SequenceQueue) -> None:
        self.worker = worker
        self.waiting = waiting
        self.budget = worker.budget
        self.max_chunk = worker.settings.max_chunk or worker.budget
        self.plan = StepPlan(worker.id, worker.step + 1, full=worker.full)
        self.has_preempted = False

    def row(self, sequence: Sequence, behind: int) -> bool:
        """Gives a running sequence, `behind` by so many tokens, its row, if pages can be had."""
        num_tokens = min(behind, self.budget, self.max_chunk)
        lacking = self.worker.num_pages(sequence.planned + num_tokens) - len(sequence.table)
        if lacking > 0:
            pages = self._pages(sequence, lacking)
            if pages is None:
                return False
            self._grow(sequence, pages, pages)
        self._enter(sequence, num_tokens, behind)
        return True

    def first_row(self, sequence: Sequence) -> None:
        """Slot and first row of a sequence just admitted, whose table is new to the worker."""
        worker = self.worker
        sequence.slot = worker.free_slots.pop()
        worker.running.add(sequence)
        worker.held_tokens += sequence.planned
        self.plan.new_slots.append(NewSlot(sequence.slot, sequence, tuple(sequence.tokens), sequence.computed))
        behind = sequence.uncomputed
        num_tokens = min(behind, self.budget, self.max_chunk)
        pages = worker.device.take(worker.num_pages(sequence.planned + num_tokens) - len(sequence.table))
        assert pages is not None, "admission checks room before it starts a sequence"
        self._grow(sequence, pages, [*sequence.table, *pages])
        self._enter(sequence, num_tokens, behind)

    def _grow(self, sequence: Sequence, pages: list[int], news: list[int]) -> None:
        """Adds pages to a table; `news` is what the worker has to hear of."""
        sequence.table += pages
        self.plan.growth.append((sequence.slot, news))
        if self.worker.joined.needs_zeroed_pages:
            self.plan.zero += pages

    def _enter(self, sequence: Sequence, num_tokens: int, behind: int) -> None:
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
