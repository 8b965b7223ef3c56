"""A whole service on a table top: the real core and the real codec, paper workers, a clock that is a number.

Results come back when `deliver` is called, so that a test (or a seeded random walk) decides what is in flight. After every
event all laws are checked.
"""

from collections import defaultdict, deque
from collections.abc import Sized
from typing import Protocol

from octavo.v1 import step_pb2
from octavo_scheduler.core import Core, Settings, events
from octavo_scheduler.core.audit import violations
from octavo_scheduler.core.events import PAIR_BYTES, Committed, Finished, Output, Refused, Scored, Started
from octavo_scheduler.core.request import RequestSpec, Sampling
from octavo_scheduler.wire import Epoch, Greeting, StepReport, decode, encode_masks, encode_plan

from tests.doubles.paper_worker import VOCAB_SIZE, mask_after

EPOCH = Epoch(1, 1)
ANY_TOKEN = b"\xff" * -(-VOCAB_SIZE // 8)


def decoded(message: step_pb2.WorkerMessage, worker: str) -> object:
    return decode(message.SerializeToString(), worker)[1]


class Worker(Protocol):
    """What a table top needs of a worker: a paper one, or a real runner."""

    @property
    def slots(self) -> Sized: ...
    def reset(self) -> None: ...
    def hello(self, worker_id: str) -> step_pb2.Hello: ...
    def execute(self, plan: step_pb2.StepPlan) -> step_pb2.StepResult: ...


class TableTop:
    def __init__(self, settings: Settings | None = None, **workers: Worker) -> None:
        self.core = Core(settings or Settings())
        self.now = 0.0
        self.workers: dict[str, Worker] = {}
        self.results: dict[str, deque[step_pb2.StepResult]] = {}
        self.num_open = 0
        """Plans whose masks followed."""
        self.behind: dict[str, deque[step_pb2.StepPlan]] = {}
        """Plans that wait for masks, their own or those of the first of them."""
        self.tokens: dict[str, list[int]] = {}
        self.logprobs: defaultdict[str, list[bytes]] = defaultdict(list)
        """One for each token, empty where none is asked for."""
        self.scored: defaultdict[str, bytes] = defaultdict(bytes)
        """Log-probabilities of prompts."""
        self.finished: dict[str, Finished] = {}
        self.refused: dict[str, Refused] = {}
        self.started: dict[str, Started] = {}
        self._prompt_logprobs: dict[str, int] = {}
        self.plans: list[step_pb2.StepPlan] = []
        self.constrained: dict[str, tuple[int, ...]] = {}
        """Prompts of constrained requests."""
        self.owed: list[events.Masked] = []
        """Masks that `masked` will bring."""
        self.swapped_bytes = 0
        self.num_pages_out = self.num_pages_in = 0
        for name, worker in workers.items():
            self.join(name, worker)

    def join(self, name: str, worker: Worker) -> None:
        worker.reset()
        self.workers[name], self.results[name], self.behind[name] = worker, deque(), deque()
        greeting = decoded(step_pb2.WorkerMessage(hello=worker.hello(name)), "")
        assert isinstance(greeting, Greeting)
        self.apply(greeting.joined)

    def kill(self, name: str) -> None:
        del self.workers[name], self.results[name], self.behind[name]
        self.apply(events.Lost(name))

    @staticmethod
    def key(request: str, branch: int) -> str:
        """What a branch is called in `tokens` and `finished`; the trunk has the name of its request."""
        return f"{request}/{branch}" if branch else request

    def submit(self, name: str, prompt: list[int], max_tokens: int | None = 8, **fields: object) -> None:
        names = ("seed", "temperature", "biases")
        sampling = Sampling(**{name: fields.pop(name) for name in names if name in fields})  # type: ignore[arg-type]
        spec = RequestSpec(id=name, prompt=tuple(prompt), max_tokens=max_tokens, sampling=sampling, **fields)  # type: ignore[arg-type]
        for branch in range(spec.n):
            self.tokens[self.key(name, branch)] = list(spec.held[branch]) if spec.held else []
        self._prompt_logprobs[name] = spec.prompt_logprobs or 0
        self._note(self.core.submit(spec, self.now))
        if spec.is_constrained:
            self.constrained[name] = spec.prompt
            for branch in range(spec.n):
                self._owe(name, branch)

    def abort(self, name: str, at: int | None = None, branch: int = 0) -> None:
        self._note(self.core.abort(name, self.now, at, branch))

    def apply(self, event: events.Event) -> None:
        self._note(self.core.apply(event, self.now))

    def plan(self, name: str) -> bool:
        """Makes and executes the worker's next plan; its result waits for `deliver`."""
        plan = self.core.plan(name, self.now)
        self._audit()
        if plan is None:
            return False
        self.num_pages_out += len(plan.swap_out)
        self.num_pages_in += len(plan.swap_in)
        message = step_pb2.SchedulerMessage()
        message.ParseFromString(encode_plan(EPOCH, plan))
        self.plans.append(message.plan)
        self.behind[name].append(message.plan)
        self._execute(name)
        return True

    def _execute(self, name: str) -> None:
        """All plans up to the first whose masks are still to come."""
        behind = self.behind[name]
        while behind and (behind[0].rows.mask or not behind[0].rows.masked_row):
            self.results[name].append(self.workers[name].execute(behind.popleft()))

    def _send_masks(self) -> None:
        for name in self.workers:
            while (plan := self.core.open_masks(name)) is not None:
                message = step_pb2.SchedulerMessage()
                message.ParseFromString(encode_masks(EPOCH, plan))
                self.num_open += 1
                first = self.behind[name][0]
                assert first.step == message.masks.step
                first.rows.mask = message.masks.mask or ANY_TOKEN * (len(first.rows.masked_row) // 2)
                self._execute(name)

    def deliver(self, name: str) -> bool:
        if not self.results[name]:
            return False
        report = decoded(step_pb2.WorkerMessage(result=self.results[name].popleft()), name)
        assert isinstance(report, StepReport)
        self.swapped_bytes += report.swapped_bytes
        self.apply(report.done)
        return True

    def masked(self, place: int = 0, *, again: bool = False) -> None:
        """Brings one of the masks that are owed; `again`: and will bring it once more."""
        self.apply(self.owed[place] if again else self.owed.pop(place))

    def _owe(self, request: str, branch: int) -> None:
        said = self.tokens[self.key(request, branch)]
        self.owed.append(events.Masked(request, branch, len(said), mask_after([*self.constrained[request], *said])))

    def turn(self) -> bool:
        """Every worker gets what plans it takes, then gives one result. Masks come at once."""
        moved = bool(self.owed)
        while self.owed:
            self.masked()
        for name in list(self.workers):
            while self.plan(name):
                moved = True
        for name in list(self.workers):
            moved |= self.deliver(name)
        return moved

    def run(self, limit: int = 10_000) -> None:
        for _ in range(limit):
            if not self.turn():
                return
        raise AssertionError(f"the table top is still busy after {limit} turns")

    def assert_empty(self) -> None:
        assert not self.core.requests
        assert not self.core.waiting
        assert not self.core.waiting.num_accounts
        assert not self.core.waiting.queued_of
        for name, worker in self.core.workers.items():
            assert worker.device.num_available == worker.device.total
            assert worker.host.num_available == worker.host.total
            assert not worker.running
            assert not worker.swapped
            assert not self.workers[name].slots
        self.apply(events.Flush())
        assert all(worker.device.num_free == worker.device.total for worker in self.core.workers.values())

    def _note(self, outputs: list[Output]) -> None:
        for output in outputs:
            name = self.key(output.request, getattr(output, "branch", 0))
            match output:
                case Started():
                    assert output.request not in self.started
                    self.started[output.request] = output
                case _:
                    assert name not in self.finished, "nothing follows the end of a branch"
            match output:
                case Committed():
                    assert output.request in self.started
                    assert output.position == len(self.tokens[name]), "tokens come in order, each once"
                    self.tokens[name].append(output.token)
                    self.logprobs[name].append(output.logprobs)
                    if output.request in self.constrained:
                        self._owe(output.request, output.branch)
                case Scored():
                    size = PAIR_BYTES * (1 + self._prompt_logprobs[output.request])
                    assert output.first == 1 + len(self.scored[output.request]) // size, (
                        "each prompt token is told once"
                    )
                    self.scored[output.request] += output.logprobs
                case Finished():
                    self.finished[name] = output
                case Refused():
                    self.refused[output.request] = output
        self._audit()
        self._send_masks()

    def _audit(self) -> None:
        found = violations(self.core)
        assert not found, found
