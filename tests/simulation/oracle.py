"""What the front may hear of a request, and the only right answer to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from octavo_scheduler.core.events import Committed, Finished, Output, Refused, Scored, Started
from octavo_scheduler.core.request import FinishReason, RequestSpec

from tests.simulation.paper import WIDTH, checksum, extend, identity, sample, scores_of
from tests.simulation.violation import Violation


@dataclass(eq=False)
class Branch:
    state: int
    """Checksum of its history."""
    who: bytes
    num_tokens: int = 0
    last_token: int = -1
    end: FinishReason | None = None


@dataclass(eq=False)
class Asked:
    """A request as its client knows it."""

    spec: RequestSpec
    submitted_at: float
    branches: list[Branch]
    is_cancelled: bool = False
    stop_at: dict[int, int] = field(default_factory=dict)
    """Where each branch was asked to stop."""
    is_started: bool = False
    is_refused: bool = False
    planned_at: float | None = None
    """When a row of it was first planned."""
    num_cached: int = 0
    num_scored: int = 1
    """Prompt tokens whose log-probabilities were told, the first one, which has none, included."""
    preemptions: int = 0
    has_no_numbers: bool = False
    """A worker had no token for one of its branches."""
    has_no_mask: bool = False
    """Nobody could say what might come next."""
    failures: int = 0
    """Failed steps that had a row of it."""
    failures_alone: int = 0
    """Those that had no other row."""
    failures_smallest: int = 0
    """Those of its one token, than which none is smaller."""

    def is_overdue(self, now: float) -> bool:
        spec = self.spec
        in_queue = self.planned_at is None and spec.queue_deadline is not None and spec.queue_deadline <= now
        return in_queue or (spec.deadline is not None and spec.deadline <= now)

    @property
    def has_ended(self) -> bool:
        return self.is_refused or all(branch.end for branch in self.branches)


class Oracle:
    """Judges outputs. `capacities` gives the longest sequence of every worker that was ever here."""

    def __init__(self, max_faults: int, capacities: Callable[[], set[int]]) -> None:
        self.asked: dict[str, Asked] = {}
        self.live: dict[str, Asked] = {}
        self.num_committed = self.num_cancelled = 0
        self.num_refused = 0
        """At once, when they were submitted."""
        self._max_faults = max_faults
        self._capacities = capacities

    def ask(self, spec: RequestSpec, now: float) -> Asked:
        state = checksum(spec.prompt)
        branches = [Branch(state, identity(spec.sampling.seed, n)) for n in range(spec.n)]
        asked = self.asked[spec.id] = self.live[spec.id] = Asked(spec, now, branches)
        return asked

    def hear(self, outputs: list[Output], now: float) -> None:
        for output in outputs:
            for sentence in self._wrong(output, now):
                raise Violation(f"{output}: {sentence}")

    def overdue(self, now: float) -> list[str]:
        """Live requests that have run out of time, in all or in the queue."""
        return [name for name, asked in self.live.items() if asked.is_overdue(now)]

    def queued(self, tenant: str | None = None) -> list[RequestSpec]:
        """Requests of which no row was planned yet."""
        waiting = [asked.spec for asked in self.live.values() if asked.planned_at is None]
        return waiting if tenant is None else [spec for spec in waiting if spec.tenant == tenant]

    def _wrong(self, output: Output, now: float) -> Iterator[str]:
        asked = self.live.get(output.request)
        if asked is None:
            yield "the request is not live"
            return
        match output:
            case Started():
                yield from self._started(asked, output)
            case Committed():
                yield from self._committed(asked, output)
            case Scored():
                yield from self._scored(asked, output)
            case Finished():
                yield from self._finished(asked, output, now)
            case Refused():
                asked.is_refused = True
                if asked.is_started or any(branch.end for branch in asked.branches):
                    yield "it had started"
        if asked.has_ended:
            self.num_cancelled += any(branch.end is FinishReason.CANCELLED for branch in asked.branches)
            del self.live[output.request]

    def _started(self, asked: Asked, output: Started) -> Iterator[str]:
        if asked.is_started:
            yield "it started twice"
        asked.is_started = True
        if asked.planned_at is None or output.queued != asked.planned_at - asked.submitted_at:
            yield f"its first row was planned at {asked.planned_at}, it came at {asked.submitted_at}"
        if output.cached != asked.num_cached or output.cached >= len(asked.spec.prompt):
            yield f"{asked.num_cached} of {len(asked.spec.prompt)} prompt tokens were cached"

    def _committed(self, asked: Asked, output: Committed) -> Iterator[str]:
        branch = asked.branches[output.branch]
        right = sample(branch.state, branch.who)
        limit = asked.spec.max_tokens
        if not asked.is_started or branch.end:
            yield "the branch has not started or has ended"
        if output.position != branch.num_tokens:
            yield f"position {branch.num_tokens} comes next"
        if output.token != right:
            yield f"the right token is {right}"
        if branch.last_token in asked.spec.stop_token_ids or (limit is not None and branch.num_tokens >= limit):
            yield "the branch should have ended"
        branch.state = extend(branch.state, output.token)
        if output.logprobs != self._scores(branch.state, asked.spec.logprobs):
            yield "these are not the log-probabilities of this token"
        if not output.branch and asked.spec.prompt_logprobs is not None and asked.num_scored < len(asked.spec.prompt):
            yield f"log-probabilities of the prompt were told up to {asked.num_scored} only"
        branch.num_tokens += 1
        branch.last_token = output.token
        self.num_committed += 1

    def _scored(self, asked: Asked, output: Scored) -> Iterator[str]:
        if output.first != asked.num_scored or output.first >= len(asked.spec.prompt):
            yield f"log-probabilities of prompt token {asked.num_scored} come next"
        asked.num_scored += 1
        state = checksum(asked.spec.prompt[: output.first + 1])
        if asked.spec.prompt_logprobs is None or output.logprobs != self._scores(state, asked.spec.prompt_logprobs):
            yield "these are not the log-probabilities of this prompt token"

    @staticmethod
    def _scores(state: int, num_best: int | None) -> bytes:
        return b"" if num_best is None else scores_of(state.to_bytes(WIDTH, "little"), num_best)

    def _finished(self, asked: Asked, output: Finished, now: float) -> Iterator[str]:
        branch = asked.branches[output.branch]
        if branch.end:
            yield "the branch ended twice"
        branch.end = output.reason
        at = asked.stop_at.get(output.branch)
        is_stopped_at = output.reason is FinishReason.STOP and output.stop_token is None
        if output.num_tokens != (at if is_stopped_at else branch.num_tokens):
            yield f"{branch.num_tokens} tokens were committed, {at} asked for"
        if output.preemptions != asked.preemptions:
            yield f"it was preempted {asked.preemptions} times"
        if not self._is_due(asked, branch, output, now):
            yield "there is no reason for this end"

    def _is_due(self, asked: Asked, branch: Branch, output: Finished, now: float) -> bool:
        spec = asked.spec
        match output.reason:
            case FinishReason.STOP if output.stop_token is not None:
                return output.stop_token == branch.last_token and output.stop_token in spec.stop_token_ids
            case FinishReason.STOP:
                return output.branch in asked.stop_at
            case FinishReason.LENGTH:
                longest = len(spec.prompt) + branch.num_tokens
                return branch.num_tokens == spec.max_tokens or (
                    spec.max_tokens is None and longest in self._capacities()
                )
            case FinishReason.CANCELLED:
                return asked.is_cancelled
            case FinishReason.DEADLINE:
                return asked.is_overdue(now)
            case FinishReason.NO_MASK:
                return asked.has_no_mask
            case FinishReason.NO_NUMBERS:
                return asked.has_no_numbers
            case FinishReason.FAILED | FinishReason.NO_MEMORY:
                if output.reason is FinishReason.NO_MEMORY and self._max_faults > 1 and not asked.failures_smallest:
                    return False
                return asked.failures >= self._max_faults and asked.failures_alone >= self._max_faults - 1
        return False
