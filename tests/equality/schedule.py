"""Requests through the real core, the real codec and a real runner, one plan ahead, as the scheduler's loop would do it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from octavo.v1 import step_pb2
from octavo_scheduler.core import Core, Settings
from octavo_scheduler.core.audit import violations
from octavo_scheduler.core.events import Committed, Finished, Output, Refused
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.wire import Epoch, Greeting, StepReport, decode, encode_plan

from tests.equality.engine import RunnerWorker

EPOCH = Epoch(1, 1)
NAME = "w"
MOST_STEPS = 2_000


@dataclass
class Outcome:
    """What came of some requests: token ids by request and branch, and what was done to them on the way."""

    ids: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    logprobs: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    """One for each id."""
    finished: dict[tuple[str, int], Finished] = field(default_factory=dict)
    num_forks: int = 0
    resumed_at: list[int] = field(default_factory=list)
    """Answer lengths at which sequences came back after a preemption."""

    def preemptions(self, request: str) -> int:
        return max(finished.preemptions for (name, _), finished in self.finished.items() if name == request)


class Schedule:
    """One worker with as many pages as it is told, and a core of its own."""

    def __init__(self, worker: RunnerWorker, pages: int, settings: Settings) -> None:
        self.core = Core(settings)
        self.worker = worker
        self.outcome = Outcome()
        self._results: deque[step_pb2.StepResult] = deque()
        worker.reset()
        worker.pages = pages
        greeting = self._decoded(step_pb2.WorkerMessage(hello=worker.hello(NAME)))
        assert isinstance(greeting, Greeting)
        self._note(self.core.apply(greeting.joined, 0.0))

    def run(self, requests: Sequence[RequestSpec]) -> Outcome:
        """All of them at once, to their ends. Afterwards the core holds nothing and its audit finds nothing."""
        for spec in requests:
            for branch in range(spec.n):
                self.outcome.ids[spec.id, branch], self.outcome.logprobs[spec.id, branch] = [], []
            self._note(self.core.submit(spec, 0.0))
        for _ in range(MOST_STEPS):
            while self._plan():
                pass
            if not self._results:
                break
            report = self._decoded(step_pb2.WorkerMessage(result=self._results.popleft()))
            assert isinstance(report, StepReport)
            self._note(self.core.apply(report.done, 0.0))
        assert not self.core.requests, "a request is stuck"
        found = violations(self.core)
        assert not found, found
        pool = self.core.workers[NAME].device
        assert pool.num_available == pool.total
        return self.outcome

    def _plan(self) -> bool:
        plan = self.core.plan(NAME, 0.0)
        if plan is None:
            return False
        message = step_pb2.SchedulerMessage.FromString(encode_plan(EPOCH, plan)).plan
        self.outcome.num_forks += len(message.forks.target) // 2
        new = message.new_slots
        lengths, prompts = (np.frombuffer(column, "<i4") for column in (new.num_tokens, new.num_prompt))
        self.outcome.resumed_at += (lengths - prompts)[lengths > prompts].tolist()
        self._results.append(self.worker.execute(message))
        return True

    def _note(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Committed():
                    ids = self.outcome.ids[output.request, output.branch]
                    assert len(ids) == output.position
                    ids.append(output.token)
                    self.outcome.logprobs[output.request, output.branch].append(output.logprobs)
                case Finished():
                    assert (output.request, output.branch) not in self.outcome.finished
                    self.outcome.finished[output.request, output.branch] = output
                case Refused():
                    raise AssertionError(output.message)

    @staticmethod
    def _decoded(message: step_pb2.WorkerMessage) -> object:
        return decode(message.SerializeToString(), NAME)[1]
