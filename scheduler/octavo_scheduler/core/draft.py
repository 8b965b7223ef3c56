"""A plan while it is being made: rows, the pages they need, and whoever has to give up pages for them.

When pages run out, the running sequence that is last in order gives up its own, never one that comes before the needy
one. A victim with a row in flight gets no further rows and is preempted after the result, with its token committed.
"""

from octavo_scheduler.core.plan import Constrained, Fork, Growth, NewSlot, StepPlan
from octavo_scheduler.core.preempt import prefers_swap
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceMove
from octavo_scheduler.core.tiers import swap_out, take
from octavo_scheduler.core.waiting import Waiting
from octavo_scheduler.core.worker import Worker


class Draft:
    """Makes the changes of pools and sequences that the plan stands for. `budget`: tokens that still fit."""

    def __init__(self, worker: Worker, waiting: Waiting) -> None:
        self.worker = worker
        self.waiting = waiting
        self.budget = worker.budget
        self.max_chunk = worker.settings.max_chunk or worker.budget
        self.scores_left = worker.joined.max_prompt_scores
        self.plan = StepPlan(worker.id, worker.step + 1, full=worker.full)
        self.num_preempted_pages = 0

    def row(self, sequence: Sequence, behind: int) -> bool:
        """Gives a running sequence, `behind` by so many tokens, its row, if pages can be had."""
        num_tokens = self._chunk(sequence, behind)
        worker = self.worker
        fits = sequence.planned + num_tokens <= len(sequence.table) * worker.page_size
        if (worker.shared_gaps or not fits) and not self._make_room(sequence, num_tokens):
            return False
        self._enter(sequence, num_tokens, behind)
        return True

    def first_row(self, sequence: Sequence) -> None:
        """Slot and first row of a sequence just admitted, whose table is new to the worker."""
        worker = self.worker
        sequence.slot = worker.free_slots.pop()
        worker.running.add(sequence)
        worker.held_tokens += sequence.planned
        biases = sequence.request.spec.sampling.biases
        self.plan.new_slots.append(NewSlot(sequence.slot, sequence, tuple(sequence.tokens), sequence.computed, biases))
        behind = sequence.uncomputed
        num_tokens = self._chunk(sequence, behind)
        pages = take(worker, worker.num_pages(sequence.planned + num_tokens) - len(sequence.table), self.plan)
        assert pages is not None, "admission checks room before it starts a sequence"
        sequence.table += pages
        self._tell(Growth(sequence.slot, 0, list(sequence.table)), pages)
        self._enter(sequence, num_tokens, behind)

    def _chunk(self, sequence: Sequence, behind: int) -> int:
        """Tokens of its row. Of logits, each row has one row to itself, and for prompt scores there are some more."""
        num_tokens = min(behind, self.budget, self.max_chunk)
        return sequence.cut_row(sequence.planned, num_tokens, self.scores_left) if sequence.is_scored else num_tokens

    def _make_room(self, sequence: Sequence, num_tokens: int) -> bool:
        """Pages for a row, from victims that come after the sequence if need be.

        A last page that forks still share is not written: a copy takes its place, unless the others have gone by then.
        """
        worker = self.worker
        while True:
            num_copied = worker.shares_last_page(sequence)
            lacking = worker.num_pages(sequence.planned + num_tokens) - len(sequence.table) + num_copied
            if not lacking:
                return True
            pages = take(worker, lacking, self.plan)
            if pages is not None:
                break
            if not self._evict_one(after=sequence):
                return False
        if num_copied:
            shared = sequence.table.pop()
            self.plan.copy.append((shared, pages[0]))
            worker.device.give_back([shared], until=self.plan.step)
        sequence.table += pages
        self._tell(Growth(sequence.slot, int(num_copied), pages), pages[num_copied:])
        return True

    def _tell(self, growth: Growth, unwritten: list[int]) -> None:
        self.plan.growth.append(growth)
        if self.worker.joined.needs_zeroed_pages:
            self.plan.zero += unwritten

    def _enter(self, sequence: Sequence, num_tokens: int, behind: int) -> None:
        plan = self.plan
        samples = int(num_tokens == behind)
        plan.rows.append(sequence)
        plan.row_slots.append(sequence.slot)
        plan.row_tokens.append(num_tokens)
        plan.row_samples.append(samples)
        if sequence.is_scored:
            self._score(sequence, num_tokens, samples)
        sequence.planned += num_tokens
        sequence.pending += samples
        sequence.rows_in_flight += 1
        sequence.last_step = plan.step
        self.worker.held_tokens += num_tokens
        self.budget -= num_tokens
        request = sequence.request
        if samples and request.spec.is_constrained:
            plan.constrained.append(
                Constrained(len(plan.rows) - 1, sequence, sequence.num_generated + sequence.pending - 1)
            )
        if samples and not request.is_answered and request.num_unborn:
            self._branch_off(sequence, num_tokens)

    def _score(self, sequence: Sequence, num_tokens: int, samples: int) -> None:
        """Asks for log-probabilities of what the row leads to: tokens of the prompt, and its sample."""
        plan, spec = self.plan, sequence.request.spec
        prompt = sequence.prompt_scores(sequence.planned, num_tokens)
        if prompt:
            plan.scored += [(sequence, position) for position in prompt]
            plan.num_best = max(plan.num_best, spec.prompt_logprobs or 0)
            self.scores_left = max(self.scores_left - len(prompt), 0)
        if samples and spec.logprobs is not None:
            plan.scored.append((sequence, sequence.planned + num_tokens))
            plan.num_best = max(plan.num_best, spec.logprobs)

    def _branch_off(self, trunk: Sequence, num_tokens: int) -> None:
        """The first token is sampled here: once for the trunk and once for each branch that finds a slot; others wait."""
        request = trunk.request
        for sequence in request.branch_off(request.spec.n):
            if self.worker.free_slots and self.worker.can_fork(request):
                self._fork(trunk, sequence, num_tokens)
                self.plan.row_samples[-1] += 1
            else:
                self.waiting.add(sequence)

    def _fork(self, trunk: Sequence, sequence: Sequence, num_tokens: int) -> None:
        """The branch shares all of the trunk's pages and the row that computes the last of them."""
        worker = self.worker
        sequence.worker = worker
        sequence.move(SequenceMove.ADMIT)
        sequence.slot = worker.free_slots.pop()
        sequence.table = list(trunk.table)
        worker.share_table(trunk)
        sequence.max_tokens = trunk.max_tokens
        sequence.keys, sequence.key_page_size = list(trunk.keys), trunk.key_page_size
        sequence.planned, sequence.computed = trunk.planned, trunk.planned - num_tokens
        sequence.pending = sequence.rows_in_flight = 1
        sequence.last_step = self.plan.step
        worker.running.add(sequence)
        worker.held_tokens += sequence.planned
        self.plan.forks.append(Fork(trunk.slot, sequence.slot, sequence))
        if sequence.request.spec.logprobs is not None:
            self.plan.scored.append((sequence, sequence.planned))

    def _evict_one(self, after: Sequence) -> bool:
        """Preempts the last sequence after this one; False when there is none, or its row in flight must come back first."""
        victim = self._victim(after)
        if victim is None:
            return False
        if victim.rows_in_flight:
            victim.is_evicting = True
            return False
        self._preempt(victim)
        return True

    def _victim(self, after: Sequence) -> Sequence | None:
        for victim in reversed(self.worker.running):
            if victim is after:
                return None
            if victim.table:
                return victim
        return None

    def _preempt(self, victim: Sequence) -> None:
        self.num_preempted_pages += len(victim.table)
        victim.request.preemptions += 1
        worker = self.worker
        if prefers_swap(worker, victim) and swap_out(worker, victim, self.plan):
            worker.num_swaps += 1
            return
        self.drop(victim)

    def drop(self, sequence: Sequence) -> None:
        """Gives up its pages, of both tiers, to be computed again. It has no row in flight."""
        self.worker.num_drops += 1
        self.worker.release(sequence)
        sequence.move(SequenceMove.DROP)
        self.waiting.add(sequence)
