"""The live requests: who is accepted, who waits, who is out of time, how each of them ends."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import inf

from octavo_scheduler.core.capacity import unholdable
from octavo_scheduler.core.counters import Counters
from octavo_scheduler.core.events import Finished, Masked, Output, Refused
from octavo_scheduler.core.request import FinishReason, Request, RequestSpec, Sequence
from octavo_scheduler.core.settings import Settings
from octavo_scheduler.core.states import REQUEST_MOVES, RequestMove, RequestState, SequenceMove, SequenceState, move
from octavo_scheduler.core.waiting import Waiting
from octavo_scheduler.core.worker import Worker


class Registry:
    """Owned by the core. Size is O(live requests)."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self.counters = counters
        self.requests: dict[str, Request] = {}
        self.waiting = Waiting(settings)
        self._arrivals = 0
        self._deadlines: list[tuple[float, str]] = []

    def accept(self, spec: RequestSpec, workers: Iterable[Worker], now: float) -> list[Output]:
        """Queues a request (no output) or refuses it. Raises ValueError for an id that is live."""
        if spec.id in self.requests:
            raise ValueError(f"request {spec.id} is live already")
        refusal = self._refusal(spec, workers, now)
        if refusal is not None:
            self.counters.refused += 1
            return [refusal]
        self.counters.accepted += 1
        self._arrivals += 1
        request = Request(spec, self._arrivals, now, self.waiting.open(spec), num_scored=max(spec.num_scored, 1))
        request.branch_off(spec.trunk + 1)
        self.requests[spec.id] = request
        self.waiting.add(request.sequences[spec.trunk])
        for deadline in (spec.deadline, spec.queue_deadline):
            if deadline is not None:
                heappush(self._deadlines, (deadline, spec.id))
        return []

    def _refusal(self, spec: RequestSpec, workers: Iterable[Worker], now: float) -> Refused | None:
        overflow = self.waiting.overflow(spec)
        if overflow is not None:
            return Refused(spec.id, "QUEUE_FULL", overflow, self.waiting.seconds(now))
        return unholdable(workers, spec)

    def refuse_unholdable(self, workers: Iterable[Worker]) -> list[Output]:
        """Takes back the acceptance of queued requests that none of the workers now present could ever hold."""
        outputs: list[Output] = []
        for sequence in [s for s in self.waiting if s.request.state is RequestState.QUEUED]:
            refusal = unholdable(workers, sequence.request.spec)
            if refusal is not None:
                self.end(sequence.request, FinishReason.FAILED)
                outputs.append(Refused(refusal.request, "NO_WORKER", refusal.message))
        return outputs

    def note_mask(self, masked: Masked) -> list[Output]:
        """The latest position counts; a request of which nobody can say what comes next ends."""
        request = self.requests.get(masked.request)
        if request is None:
            return []
        if masked.mask is None:
            return self.end(request, FinishReason.NO_MASK)
        if masked.position >= request.masks.get(masked.branch, (0, b""))[0]:
            request.masks[masked.branch] = masked.position, masked.mask
        return []

    @property
    def next_deadline(self) -> float:
        """When the next request runs out of time; infinity when none does."""
        return self._deadlines[0][0] if self._deadlines else inf

    def expire(self, now: float) -> list[Output]:
        """Ends the requests whose deadline has come."""
        outputs: list[Output] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = self.requests.get(heappop(self._deadlines)[1])
            if request is not None and _is_out_of_time(request, now):
                outputs += self.end(request, FinishReason.DEADLINE)
        return outputs

    def end(self, request: Request, reason: FinishReason) -> list[Output]:
        """Ends a request with all branches that are left, also those that have not forked off yet."""
        left = [s for s in request.sequences if s.state is not SequenceState.DONE]
        unborn = sorted(set(range(len(request.sequences), request.spec.n)) - request.spec.ended)
        finished = [self._finish(sequence, reason) for sequence in left]
        self._retire(request)
        if reason is FinishReason.CANCELLED:
            self.counters.cancelled += 1
        return [*finished, *(Finished(request.spec.id, branch, reason, 0, request.preemptions) for branch in unborn)]

    def end_branch(self, sequence: Sequence, reason: FinishReason, stop_token: int | None = None) -> list[Output]:
        """Ends one branch, and with the last one its request; so does a trunk from which nothing has forked off yet."""
        if sequence.request.num_unborn:
            return self.end(sequence.request, reason)
        finished = self._finish(sequence, reason, stop_token)
        if all(other.state is SequenceState.DONE for other in sequence.request.sequences):
            self._retire(sequence.request)
        return [finished]

    def _finish(self, sequence: Sequence, reason: FinishReason, stop_token: int | None = None) -> Finished:
        if sequence.state is SequenceState.WAITING:
            self.waiting.discard(sequence)
        elif sequence.worker is not None:
            sequence.worker.release(sequence)
        sequence.move(SequenceMove.FINISH)
        request = sequence.request
        return Finished(
            request.spec.id, sequence.branch, reason, sequence.num_generated, request.preemptions, stop_token
        )

    def _retire(self, request: Request) -> None:
        request.state = move(REQUEST_MOVES, request.state, RequestMove.END)
        del self.requests[request.spec.id]
        self.waiting.close(request.spec, request.account)
        self.counters.ended += 1
        if len(self._deadlines) > 4 * len(self.requests) + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self.requests]
            heapify(self._deadlines)


def _is_out_of_time(request: Request, now: float) -> bool:
    spec = request.spec
    waits_too_long = (
        request.state is RequestState.QUEUED and spec.queue_deadline is not None and spec.queue_deadline <= now
    )
    return waits_too_long or (spec.deadline is not None and spec.deadline <= now)
