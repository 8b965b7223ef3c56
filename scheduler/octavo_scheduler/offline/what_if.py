"""Recorded arrivals under other settings, on the production core, with workers that only take time.

Requests arrive when they arrived and answer with the tokens they answered with; clients that left, leave at the same time;
workers come and go as they did. A step takes as long as a model fitted to the recorded steps says.
"""

from heapq import heappop, heappush
from itertools import count
from statistics import median
from typing import NamedTuple

from octavo_scheduler.core import Core, Settings
from octavo_scheduler.core.events import Committed, Event, Joined, Lost, Output, StepDone, Tick
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import FinishReason, RequestSpec, Sequence
from octavo_scheduler.core.worker import Worker
from octavo_scheduler.offline.change import Change
from octavo_scheduler.offline.latency import LatencyModel, load
from octavo_scheduler.offline.meter import Figures, Meter
from octavo_scheduler.offline.traffic import Traffic
from octavo_scheduler.record import token_owners

UNTIMELY = (FinishReason.CANCELLED, FinishReason.DEADLINE)
"""Ends that have nothing to do with what was said."""


class Result(NamedTuple):
    """A step that a simulated worker is busy with."""

    worker: Worker
    plan: StepPlan


Happening = RequestSpec | str | Event | Result
"""A submission, the id of a request whose client leaves, what happens to a worker, or the end of a step."""


class Simulation:
    """One run through the traffic."""

    def __init__(self, traffic: Traffic, settings: Settings, change: Change, model: LatencyModel) -> None:
        self.core = Core(change.of_settings(settings))
        self.meter = Meter()
        self._model = model
        self._change = change
        self._requests = traffic.requests
        self._agenda: list[tuple[float, int, Happening]] = []
        self._order = count()
        self._busy_until: dict[str, float] = {}
        self._length = self._ends(traffic)
        for at, event in traffic.events:
            self._schedule(at, event)
        for asked in traffic.requests:
            self._schedule(asked.at, asked.spec)
            if asked.has_left:
                self._schedule(traffic.ended_at if asked.ended_at is None else asked.ended_at, asked.spec.id)

    def run(self) -> Figures:
        """Until nothing is left to happen."""
        while self._agenda:
            now = self._agenda[0][0]
            while self._agenda and self._agenda[0][0] == now:
                self._note(self._happen(heappop(self._agenda)[2], now), now)
            self._note(self.core.apply(Tick(), now), now)
            for worker in list(self.core.workers.values()):
                self._plan(worker, now)
            if self.core.requests and now < self.core.next_deadline < float("inf"):
                self._schedule(self.core.next_deadline, Tick())
        return self.meter.figures(self.core)

    def _note(self, outputs: list[Output], now: float) -> None:
        """Stops each branch where it ended, as a client does that has found its stop string."""
        self.meter.note(outputs, now)
        for output in outputs:
            if isinstance(output, Committed):
                length = self._length.get((output.request, output.branch))
                if length == output.position + 1:
                    self.meter.note(self.core.abort(output.request, now, length, output.branch), now)

    def _schedule(self, at: float, happening: Happening) -> None:
        heappush(self._agenda, (at, next(self._order), happening))

    def _happen(self, happening: Happening, now: float) -> list[Output]:
        match happening:
            case RequestSpec():
                self.meter.arrive(happening.id, happening.n, now)
                return self.core.submit(happening, now)
            case str():
                return self.core.abort(happening, now)
            case Result():
                return self._finish(happening, now)
            case Joined():
                self._busy_until[happening.worker] = now
                return self.core.apply(self._change.of_worker(happening), now)
        named = getattr(happening, "worker", None)
        if named is None or named in self.core.workers or isinstance(happening, Lost):
            return self.core.apply(happening, now)
        return []  # nothing can happen to a worker that the core gave up

    def _plan(self, worker: Worker, now: float) -> None:
        while (plan := self.core.plan(worker.id, now)) is not None:
            self.meter.plan(worker)
            began = max(now, self._busy_until[worker.id])
            self._busy_until[worker.id] = began + self._model.seconds(load(plan, worker))
            self._schedule(self._busy_until[worker.id], Result(worker, plan))

    def _finish(self, result: Result, now: float) -> list[Output]:
        worker, plan = result.worker, result.plan
        if self.core.workers.get(worker.id) is not worker:
            return []
        tokens = tuple(self._token(branch) for branch in token_owners(plan))
        return self.core.apply(StepDone(worker.id, plan.step, tokens, bytes(plan.logprob_bytes)), now)

    def _token(self, branch: Sequence) -> int:
        """The token that was recorded here; beyond the recorded answer any that does not stop it."""
        spec = branch.request.spec
        answer = self._requests[int(spec.id)].answers.get(branch.branch, [])
        if branch.num_generated < len(answer):
            return answer[branch.num_generated]
        return next(token for token in count(1) if token not in spec.stop_token_ids)

    def _ends(self, traffic: Traffic) -> dict[tuple[str, int], int]:
        """After how many tokens each branch has said what it says. One that was refused says as much as the median."""
        lengths = {
            (asked.spec.id, branch): max(len(asked.answers[branch]), 1)
            for asked in traffic.requests
            for branch, reason in asked.reasons.items()
            if reason not in UNTIMELY
        }
        usual = int(median(lengths.values() or [1]))
        refused = [asked.spec for asked in traffic.requests if asked.is_refused]
        return lengths | {(spec.id, branch): usual for spec in refused for branch in range(spec.n)}
