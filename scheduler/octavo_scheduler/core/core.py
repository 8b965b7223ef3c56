"""The four verbs.

`submit` and `abort` come from the front, `apply` brings what happened to workers and to time, `plan` makes a worker's next
step. All state of the service lives in this object and is O(live requests).
"""

from collections.abc import Iterable
from itertools import islice

from octavo_scheduler.core import events
from octavo_scheduler.core.auditor import Auditor
from octavo_scheduler.core.counters import Counters
from octavo_scheduler.core.events import NO_TOKEN, Event, Output, Started, committed
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.planner import Planner
from octavo_scheduler.core.prefix import pin_keys, publish
from octavo_scheduler.core.registry import Registry
from octavo_scheduler.core.request import FinishReason, RequestSpec, Sequence
from octavo_scheduler.core.results import fits, take_scores
from octavo_scheduler.core.settings import Settings
from octavo_scheduler.core.states import (
    REQUEST_MOVES,
    RequestMove,
    RequestState,
    SequenceMove,
    SequenceState,
    WorkerMove,
    WorkerState,
    move,
)
from octavo_scheduler.core.worker import Worker


class Core:
    """The scheduler without its sockets."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.workers: dict[str, Worker] = {}
        self.pins: dict[str, events.Pin] = {}
        self.counters = Counters()
        self.registry = Registry(settings, self.counters)
        self.requests = self.registry.requests
        self.waiting = self.registry.waiting
        self.auditor = Auditor(self.counters)

    def submit(self, spec: RequestSpec, now: float) -> list[Output]:
        """Accepts a request (no output) or refuses it. Raises ValueError for an id that is live."""
        return self.registry.accept(spec, self.workers.values(), now)

    def abort(self, request_id: str, now: float, at: int | None = None, branch: int = 0) -> list[Output]:
        """Cancels a request or, with `at`, stops one branch of it after that many tokens. What has ended is ignored."""
        request = self.requests.get(request_id)
        if request is None:
            return []
        if at is None:
            return self.registry.end(request, FinishReason.CANCELLED)
        sequence = request.sequences[branch] if branch < len(request.sequences) else None
        if sequence is None or sequence.state is SequenceState.DONE:
            return []
        del sequence.tokens[sequence.num_prompt + at :]
        return self.registry.end_branch(sequence, FinishReason.STOP)

    @property
    def next_deadline(self) -> float:
        """When the next request runs out of time; infinity when none does."""
        return self.registry.next_deadline

    def plan(self, worker_id: str, now: float) -> StepPlan | None:
        """The worker's next step, or None when it has enough in flight or nothing to do."""
        worker = self.workers.get(worker_id)
        if worker is None or not self.takes_plans(worker) or not (self.waiting or worker.has_work):
            return None
        plan = Planner(worker, self.waiting, self.others(worker), now).build()
        for new_slot in plan.new_slots if plan else ():
            request = new_slot.sequence.request
            if request.state is RequestState.QUEUED:
                request.state = move(REQUEST_MOVES, request.state, RequestMove.START)
                request.started_at = now
        return plan

    def open_masks(self, worker_id: str) -> StepPlan | None:
        """The plan that this worker has without its masks, once they are all known. Each plan once, in their order."""
        worker = self.workers.get(worker_id)
        return worker.open_plan() if worker is not None else None

    def others(self, worker: Worker) -> list[Worker]:
        """The other workers that could take a sequence, now or with the next plan that they take."""
        return [
            other
            for other in self.workers.values()
            if other is not worker and other.state is WorkerState.READY and other.free_slots
        ]

    def takes_plans(self, worker: Worker) -> bool:
        """Whether it may be sent one more plan now."""
        can_plan = worker.state in (WorkerState.READY, WorkerState.DRAINING)
        return can_plan and len(worker.in_flight) < self.settings.plans_in_flight

    def apply(self, event: Event, now: float) -> list[Output]:
        """Takes note of what happened. Events of unknown workers and steps are counted and ignored."""
        match event:
            case events.StepDone():
                return self._step_done(event, now)
            case events.Masked():
                return self.registry.note_mask(event)
            case events.Tick():
                if (doubtful := self.auditor.tick(self.workers, now)) is not None:
                    self._start_over(doubtful)
                return self.registry.expire(now)
            case events.Joined():
                return self._join(event)
            case events.Lost():
                return self._lose(event)
            case events.Nack():
                return self._nack(event)
            case events.Flush():
                for worker in self.workers.values():
                    worker.device.flush()
                    worker.host.flush()
            case events.Pin():
                self.pins[event.name] = event
                self._pin(self.workers.values())
            case events.Unpin():
                self.pins.pop(event.name, None)
                self._pin(self.workers.values())
            case events.Drain():
                self.workers[event.worker].move(WorkerMove.DRAIN)
            case events.Resume():
                self.workers[event.worker].move(WorkerMove.RESUME)
            case events.Rates():
                self.workers[event.worker].note_rates(event.copy_bytes_per_second, event.prefill_tokens_per_second)
        return []

    def _step_done(self, event: events.StepDone, now: float) -> list[Output]:
        worker = self.workers.get(event.worker)
        if worker is None or not worker.in_flight or worker.in_flight[0].step != event.step:
            self.counters.stale_messages += 1
            return []
        plan = worker.in_flight[0]
        if not fits(event, plan, worker.joined.vocab_size):
            return self._nack(events.Nack(event.worker, event.step))
        worker.note_answer(now)
        if plan.rows:  # one without any says nothing of whether the worker is well
            worker.num_nacks = 0
            worker.appetite.note_good()
        self.counters.generated_tokens += len(event.tokens)
        outputs: list[Output] = []
        for arrival in plan.arrivals:
            arrival.pool.publish(arrival.page, arrival.content)
        logprobs = take_scores(plan, event.logprobs, outputs) if plan.scored else {}
        tokens, forks = iter(event.tokens), iter(plan.forks)
        for sequence, num_tokens, samples in zip(plan.rows, plan.row_tokens, plan.row_samples, strict=True):
            if sequence.computed < sequence.num_prompt and sequence.state is not SequenceState.DONE:
                self.counters.prompt_tokens += min(num_tokens, sequence.num_prompt - sequence.computed)
            self._advance(worker, sequence, num_tokens, next(tokens) if samples else None, logprobs, outputs)
            if samples > 1:
                for fork in islice(forks, samples - 1):
                    self._advance(worker, fork.sequence, num_tokens, next(tokens), logprobs, outputs)
        worker.device.lift(plan.step)
        worker.host.lift(plan.step)
        return outputs

    def _advance(
        self,
        worker: Worker,
        sequence: Sequence,
        num_tokens: int,
        token: int | None,
        logprobs: dict[Sequence, bytes],
        outputs: list[Output],
    ) -> None:
        """Notes that a row is done and commits its token. Runs once a row: a step of 256 rows has 200 µs for all of them."""
        sequence.rows_in_flight -= 1
        if sequence.state is SequenceState.DONE:
            self.counters.generated_tokens -= token is not None
            return
        if token == NO_TOKEN:
            outputs += self._end_without_numbers(worker, sequence)
            return
        request = sequence.request
        before = sequence.computed
        sequence.computed = before + num_tokens
        if sequence.computed // worker.page_size > before // worker.page_size:
            publish(worker, sequence, before)
        if token is None:
            return
        spec = request.spec
        position = len(sequence.tokens) - sequence.num_prompt
        if not request.is_answered:
            request.is_answered = True
            cached = min(request.num_cached, len(spec.prompt))
            outputs.append(Started(spec.id, request.started_at - request.arrived_at, cached))
        sequence.pending -= 1
        if sequence.faults:
            sequence.faults, sequence.failed_on = 0, ""
        sequence.tokens.append(token)
        account = request.account
        account.counter += account.answer_price
        outputs.append(committed((spec.id, sequence.branch, position, token, logprobs.get(sequence, b""))))
        if token in spec.stop_token_ids:
            outputs += self.registry.end_branch(sequence, FinishReason.STOP, stop_token=token)
        elif position + 1 == sequence.max_tokens:
            outputs += self.registry.end_branch(sequence, FinishReason.LENGTH)

    def _end_without_numbers(self, worker: Worker, sequence: Sequence) -> list[Output]:
        """The logits of its request are no numbers. What its pages hold may be why, so nobody finds them any more.

        They may be known by a key that only the branch has asked for which it shares them with.
        """
        self.counters.generated_tokens -= 1
        keys = dict.fromkeys(key for branch in sequence.request.sequences for key in branch.keys[1:])
        for pool in (worker.device, worker.host):
            pool.unpublish(list(keys))
        return self.registry.end(sequence.request, FinishReason.NO_NUMBERS)

    def _join(self, joined: events.Joined) -> list[Output]:
        outputs = self._lose(events.Lost(joined.worker)) if joined.worker in self.workers else []
        worker = Worker(joined, self.settings)
        worker.move(WorkerMove.WELCOME)
        self.workers[joined.worker] = worker
        self._pin([worker])
        return outputs + self.registry.refuse_unholdable(self.workers.values())

    def _pin(self, workers: Iterable[Worker]) -> None:
        for worker in workers:
            keys = [key for pin in self.pins.values() for key in pin_keys(worker, pin.salt, pin.tokens)]
            worker.device.pin(keys)
            worker.host.pin(keys)

    def _lose(self, lost: events.Lost) -> list[Output]:
        """The one rule for a lost worker: its sequences go back to waiting."""
        worker = self.workers.pop(lost.worker, None)
        if worker is None:
            return []
        self.counters.workers_lost += 1
        worker.move(WorkerMove.LOSE)
        failed = worker.in_flight[0] if worker.in_flight and lost.is_crash else None
        self._drop_all(worker)
        self.counters.swaps += worker.num_swaps
        self.counters.drops += worker.num_drops
        return self._blame(worker, failed, FinishReason.FAILED)

    def _nack(self, nack: events.Nack) -> list[Output]:
        """The worker forgot its slots: all its sequences go back to waiting. After too many of these it is lost."""
        worker = self.workers.get(nack.worker)
        if worker is None or not worker.in_flight or worker.in_flight[0].step > nack.step:
            self.counters.stale_messages += 1
            return []
        failed = next((plan for plan in worker.in_flight if plan.step == nack.step), worker.in_flight[0])
        is_smaller = nack.is_memory and worker.appetite.shrink(failed.row_tokens)
        worker.num_nacks += not is_smaller
        if worker.num_nacks >= self.settings.max_nacks:
            worker.in_flight.remove(failed)
            worker.in_flight.appendleft(failed)
            return self._lose(events.Lost(worker.id))
        self._start_over(worker)
        why = FinishReason.NO_MEMORY if nack.is_memory else FinishReason.FAILED
        return self._blame(worker, failed, why, is_own=not is_smaller)

    def _start_over(self, worker: Worker) -> None:
        """All of a worker's sequences go back to waiting, and its next plan is full."""
        steps = [plan.step for plan in worker.in_flight]
        self._drop_all(worker)
        for step in steps:
            worker.device.lift(step)
            worker.host.lift(step)
        worker.acked = worker.step
        worker.full = True
        worker.freed_slots.clear()

    def _blame(self, worker: Worker, failed: StepPlan | None, why: FinishReason, is_own: bool = True) -> list[Output]:
        """Marks the sequences of a failed step. One that was alone in it, time and again, is given up, if its steps were as
        small as can be (`is_own`)."""
        outputs: list[Output] = []
        suspects = [s for s in failed.rows if s.state is not SequenceState.DONE] if failed else []
        for sequence in suspects:
            sequence.faults = sequence.faults + 1 if is_own and len(suspects) == 1 else max(sequence.faults, 1)
            sequence.failed_on = worker.id
            if sequence.faults >= self.settings.max_faults and sequence.state is not SequenceState.DONE:
                outputs += self.registry.end(sequence.request, why)
                if why is FinishReason.NO_MEMORY:
                    worker.appetite.restore()
        return outputs

    def _drop_all(self, worker: Worker) -> None:
        for plan in worker.in_flight:
            for sequence in (*plan.rows, *(fork.sequence for fork in plan.forks)):
                sequence.rows_in_flight = 0
        worker.in_flight.clear()
        for sequence in [*worker.running, *worker.swapped]:
            sequence.last_step = 0
            worker.release(sequence)
            sequence.move(SequenceMove.DROP)
            self.waiting.add(sequence)
