"""One step of one worker.

One rule decides it: each sequence's computed tokens catch up with its known tokens within the step's token budget. Prefill,
chunked prefill, decode and recomputation after a drop are all this rule. Order: running rows first (those one token
behind before those with more to catch up, so that a long prompt never holds up a stream), then admissions. A constrained
row whose mask is not there sits out. Where only such rows run, they wait for each other (`Worker.is_gathering`), and masks
may follow the plan.
"""

from itertools import chain

from octavo_scheduler.core.admission import Admission
from octavo_scheduler.core.backoff import reserve_after
from octavo_scheduler.core.draft import Draft
from octavo_scheduler.core.placement import target
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceState
from octavo_scheduler.core.waiting import Waiting
from octavo_scheduler.core.worker import Worker


class Planner:
    """Builds one plan."""

    def __init__(self, worker: Worker, waiting: Waiting, others: list[Worker], now: float) -> None:
        """`others`: the other workers that could take a sequence, now or with the next plan that they take."""
        self.worker = worker
        self.waiting = waiting
        self.others = others
        self.draft = Draft(worker, waiting)
        self.admission = Admission(self.draft, waiting, others, now)

    def build(self) -> StepPlan | None:
        """The plan, entered into the worker's record; None when there is nothing to say."""
        worker, plan = self.worker, self.draft.plan
        worker.masks_may_follow = worker.joined.takes_late_masks and self._is_constrained()
        turns = (self._run_together, self._run_suspect) if worker.was_alone else (self._run_suspect, self._run_together)
        for turn in turns:
            turn()
            if plan.rows:
                worker.was_alone = turn == self._run_suspect
                break
        self._relieve()
        if worker.full or not plan.is_empty or not worker.in_flight:
            plan.freed_slots, worker.freed_slots = worker.freed_slots, []
        if plan.is_empty:
            return None
        plan.find_masks()
        plan.made_at = self.admission.now
        worker.step = plan.step
        worker.full = False
        worker.in_flight.append(plan)
        worker.reserve = reserve_after(worker, self.draft.num_preempted_pages)
        self._measure()
        return plan

    def _is_constrained(self) -> bool:
        """Whether all are that run here or may be admitted: these wait for each other's masks anyhow."""
        here = chain(self.worker.running, self.worker.swapped)
        return not self.waiting.num_free and all(sequence.request.spec.is_constrained for sequence in here)

    def _run_suspect(self) -> None:
        """A row for the first sequence that met a failed step. Every second plan is such a one's own."""
        for sequence in [s for s in self.worker.running if s.faults and not s.is_evicting]:
            if (behind := sequence.uncomputed) and self.draft.row(sequence, behind):
                return
        self.admission.admit_suspect()

    def _run_together(self) -> None:
        self._run()
        if not self.draft.num_preempted_pages:
            self.admission.admit()

    def _run(self) -> None:
        draft = self.draft
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
        ready = (sequence for sequence, _ in chain(decoding, catching_up))
        left = (s for s in evicting if s.uncomputed and not (s.faults or s.rows_in_flight))
        if self.worker.is_gathering(chain(ready, left)):  # which looks at one row, where any is not constrained
            return
        for sequence, behind in (*decoding, *catching_up):
            if sequence.state is SequenceState.RUNNING and not sequence.is_evicting and draft.budget:
                draft.row(sequence, behind)
        for sequence in evicting:
            if sequence.state is SequenceState.RUNNING and not sequence.rows_in_flight:
                sequence.is_evicting = False
                if self._is_better_off(sequence):
                    sequence.request.preemptions += 1
                    self._let_go(sequence)
                elif (behind := sequence.uncomputed) and draft.budget and not sequence.faults:
                    draft.row(sequence, behind)

    def _relieve(self) -> None:
        """Nobody waits, and another worker has much less to do: the first that lies swapped out here goes there, or the last
        that runs, once its rows in flight are done."""
        worker = self.worker
        if not self.others or self.waiting or self.draft.num_preempted_pages or worker.settings.preempt == "swap":
            return
        if worker.swapped:
            if target(worker, worker.swapped[0], self.admission.places) is not None:
                self._let_go(worker.swapped[0])
        elif len(worker.running) > 1 and not any(sequence.is_evicting for sequence in worker.running):
            worker.running[-1].is_evicting = self._is_better_off(worker.running[-1])

    def _let_go(self, sequence: Sequence) -> None:
        """To another worker, that has to answer a plan first, maybe."""
        self.draft.drop(sequence)
        sequence.deferred_at = self.admission.now

    def _is_better_off(self, sequence: Sequence) -> bool:
        """Whether a running sequence is worth a move to another worker. The first in order never moves."""
        worker = self.worker
        if self.waiting or worker.swapped or sequence is worker.running[0] or worker.settings.preempt == "swap":
            return False
        least = min((len(other.running) for other in self.others), default=len(worker.running))
        return len(worker.running) - least > 2 and target(worker, sequence, self.admission.places) is not None

    def _measure(self) -> None:
        worker = self.worker
        worker.forget_gaps()
        filled, held = worker.filled_slots, worker.device.num_held * worker.page_size
        for utilisation in (worker.utilisation, worker.saturated) if self.waiting else (worker.utilisation,):
            utilisation.filled += filled
            utilisation.held += held
