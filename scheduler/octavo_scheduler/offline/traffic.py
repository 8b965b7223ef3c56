"""What a log says of its requests, its workers and its steps, apart from how they were scheduled."""

from dataclasses import dataclass, field, replace

from octavo_scheduler.core.events import Committed, Event, Finished, Joined, Lost, Nack, Refused, StepDone, Tick
from octavo_scheduler.core.request import FinishReason, RequestSpec
from octavo_scheduler.event_log import Apply, EventLog, Plan, Submit
from octavo_scheduler.offline.latency import Load, Step, load
from octavo_scheduler.offline.meter import Figures, Meter
from octavo_scheduler.offline.rerun import Moment, moments


@dataclass
class Asked:
    """One request: when it came, and what became of it. Its spec bears a number for an id, since ids may come again."""

    at: float
    spec: RequestSpec
    answers: dict[int, list[int]] = field(default_factory=dict)
    """Tokens of each branch, as many as count."""
    reasons: dict[int, FinishReason] = field(default_factory=dict)
    """Why each branch ended; a branch is not there while it goes on."""
    ended_at: float | None = None
    """None: it was refused, or the log ends before it."""
    is_refused: bool = False

    @property
    def has_left(self) -> bool:
        """Its client went away before the end, or the recording ended before it."""
        return FinishReason.CANCELLED in self.reasons.values() or (self.ended_at is None and not self.is_refused)

    @property
    def num_generated(self) -> int:
        return sum(len(tokens) for tokens in self.answers.values())


@dataclass
class Traffic:
    """Everything in order of time."""

    requests: list[Asked]
    events: list[tuple[float, Event]]
    """What happened to workers; results, failures of steps and the passing of time left out."""
    steps: list[Step]
    figures: Figures
    """As recorded."""
    ended_at: float
    """The time of the last recorded call."""

    @property
    def joined(self) -> list[Joined]:
        return [event for _, event in self.events if isinstance(event, Joined)]


def read_traffic(log: EventLog) -> Traffic:
    """Replays a log and takes note. Raises LogError for a damaged line, Difference for a call that fails now."""
    observer = _Observer()
    moment = None
    for moment in moments(log):
        observer.see(moment)
    if moment is None:
        raise ValueError(f"{log.path} is empty")
    figures = observer.meter.figures(moment.core)
    return Traffic(observer.requests, observer.events, observer.steps, figures, moment.entry.now)


class _Observer:
    def __init__(self) -> None:
        self.meter = Meter()
        self.requests: list[Asked] = []
        self.events: list[tuple[float, Event]] = []
        self.steps: list[Step] = []
        self._live: dict[str, Asked] = {}
        self._planned: dict[tuple[str, int], tuple[float, Load]] = {}
        self._done_at: dict[str, float] = {}

    def see(self, moment: Moment) -> None:
        match moment.entry:
            case Submit(now, spec):
                beginnings = {branch: list(tokens) for branch, tokens in enumerate(spec.held)}
                known = replace(spec, id=str(len(self.requests)), is_constrained=False)  # nobody works out masks here
                asked = Asked(now, known, beginnings)
                self.requests.append(asked)
                self._live[spec.id] = asked
                self.meter.arrive(spec.id, spec.n - len(spec.ended), now)
            case Plan(now, name):
                self._see_plan(name, now, moment)
            case Apply(now, StepDone() as done):
                self._see_result(done, now)
            case Apply(now, Joined() | Lost() as event):
                self._planned = {key: made for key, made in self._planned.items() if key[0] != event.worker}
                self.events.append((now, event))
            case Apply(now, event) if not isinstance(event, Tick | Nack):
                self.events.append((now, event))
        self._see_outputs(moment)

    def _see_plan(self, name: str, now: float, moment: Moment) -> None:
        if moment.plan is not None:
            worker = moment.core.workers[name]
            self._planned[name, moment.plan.step] = (now, load(moment.plan, worker))
            self.meter.plan(worker)

    def _see_result(self, done: StepDone, now: float) -> None:
        """A worker begins a step when it has the plan and is done with the step before."""
        planned = self._planned.pop((done.worker, done.step), None)
        if planned is not None:
            began = max(planned[0], self._done_at.get(done.worker, planned[0]))
            self.steps.append(Step(planned[1], now - began))
            self._done_at[done.worker] = now

    def _see_outputs(self, moment: Moment) -> None:
        now = moment.entry.now
        self.meter.note(moment.outputs, now)
        for output in moment.outputs:
            asked = self._live[output.request]
            match output:
                case Committed():
                    asked.answers.setdefault(output.branch, []).append(output.token)
                case Finished():
                    asked.reasons[output.branch] = output.reason
                    del asked.answers.setdefault(output.branch, [])[output.num_tokens :]
                    if len(asked.reasons) == asked.spec.n - len(asked.spec.ended):
                        asked.ended_at = now
                case Refused():
                    asked.is_refused = True
