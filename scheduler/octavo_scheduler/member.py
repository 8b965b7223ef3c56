"""A worker as the loop sees it: how it is let in, what it owes, when it is given up."""

from collections import deque
from collections.abc import Set
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from octavo_scheduler import limits, wire
from octavo_scheduler.core.events import Joined, Rates
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.worker import Worker
from octavo_scheduler.tally import STEP_BOUNDS, Histogram
from octavo_scheduler.wire import Epoch, Greeting

IDLE_LEASE_SECONDS = 10.0
"""A worker without a plan that is silent for so long is lost."""
STEP_LEASE_SECONDS = 60.0
"""The same with a plan of which nothing is known: nothing is heard of a worker while it executes a step."""
LEAST_STEP_LEASE_SECONDS, TIMES_PREDICTED = 2.0, 8.0
"""With a plan whose time can be predicted."""
FADING = 0.95
"""What is left of the slowest step with each step that is faster."""


class Sent(NamedTuple):
    """A plan that is not answered."""

    step: int
    at: float
    """When it was sent, or when the one before it was answered."""
    size: "Size"
    lease: float
    """Seconds."""
    complete_at: float = -inf
    """When its masks were sent, where they followed; infinity while they have not."""


class Size(NamedTuple):
    """How much a plan asks for."""

    num_tokens: int
    num_moved: int
    """Pages copied, within a tier or between tiers."""

    @classmethod
    def of(cls, plan: StepPlan) -> "Size":
        return cls(sum(plan.row_tokens), len(plan.swap_out) + len(plan.swap_in) + len(plan.copy))


NOTHING = Size(0, 0)


@dataclass
class Pace:
    """How long steps of a worker take."""

    slowest: float = 0.0
    """Seconds of the slowest step lately."""
    largest: Size = NOTHING
    """Of steps that were answered: the most of each."""

    def note(self, size: Size, seconds: float) -> None:
        """A step was answered."""
        self.slowest = max(seconds, FADING * self.slowest)
        self.largest = Size(*map(max, self.largest, size))

    def lease(self, size: Size) -> float:
        """Seconds that a plan may take. One that computes or moves more than twice as much as any before it (a GPU may have
        to compile for that) gets all the time that an unknown one has."""
        if any(asked > 2 * known for asked, known in zip(size, self.largest, strict=True)):
            return STEP_LEASE_SECONDS
        return max(LEAST_STEP_LEASE_SECONDS, TIMES_PREDICTED * self.slowest)


@dataclass
class Member:
    """A worker that was welcomed."""

    worker: str
    peer: bytes
    epoch: Epoch
    heard_at: float
    num_bad: int = 0
    swapped_bytes: int = 0
    swap_seconds: float = 0.0
    pace: Pace = field(default_factory=Pace)
    sent: deque[Sent] = field(default_factory=deque)
    """Each plan that it has not answered."""
    plan_seconds: Histogram = field(default_factory=lambda: Histogram(STEP_BOUNDS))
    """To make and encode its plans."""
    answer_seconds: Histogram = field(default_factory=lambda: Histogram(STEP_BOUNDS))
    """From a plan on its way, or the answer before it, to its answer."""
    execute_seconds: Histogram = field(default_factory=lambda: Histogram(STEP_BOUNDS))
    """What it says it spent on steps."""
    memory: tuple[int, int] | None = None
    """Of its device, as it said last: bytes in use, bytes in all."""

    def note_sent(self, plan: StepPlan, seconds: float, now: float) -> None:
        """A plan is on its way, which took so long to be made."""
        self.plan_seconds.note(seconds)
        size = Size.of(plan)
        complete_at = inf if plan.lacks_masks else -inf
        self.sent.append(Sent(plan.step, now, size, self.pace.lease(size), complete_at))

    def note_masks(self, step: int, now: float) -> None:
        """The masks of a plan are on their way, too."""
        self.sent = deque(entry._replace(complete_at=now) if entry.step == step else entry for entry in self.sent)

    def is_owed_masks(self, step: int) -> bool:
        """Whether an answer to `step` comes too early: it takes masks that were not sent yet."""
        return bool(self.sent) and self.sent[0].step == step and self.sent[0].complete_at == inf

    def note_done(self, report: wire.StepReport, now: float) -> None:
        """A result came."""
        if self.sent and self.sent[0].step == report.done.step:
            seconds = now - self.sent[0].at
            self.pace.note(self.sent[0].size, seconds)
            self.answer_seconds.note(seconds)
            self.execute_seconds.note(report.execute_seconds)

    @property
    def lease_end(self) -> float:
        """A worker executing a step says nothing; heartbeats in between do not make a lost step come back. Nobody is blamed
        for a step whose masks are not there."""
        if not self.sent:
            return self.heard_at + IDLE_LEASE_SECONDS
        first = self.sent[0]
        return max(first.at, first.complete_at) + first.lease

    def has_lost(self, step: int) -> bool:
        """Whether a word about `step` means that the answer to an earlier plan will never come."""
        return bool(self.sent) and step > self.sent[0].step

    def keep(self, worker: Worker | None, now: float) -> None:
        """Forgets what the core has no longer in flight. The time of a step counts from the end of the one before."""
        in_flight = {plan.step for plan in worker.in_flight} if worker else set()
        kept = deque(entry for entry in self.sent if entry.step in in_flight)
        if kept and kept[0] != self.sent[0]:
            kept[0] = kept[0]._replace(at=now)
        self.sent = kept

    def forgive(self, now: float) -> None:
        """This very process was stopped for a while: all leases begin anew."""
        self.heard_at = now
        self.sent = deque(entry._replace(at=now) for entry in self.sent)

    def rates(self, report: wire.StepReport) -> Rates:
        """Swaps are rare, so the copy rate is the average over all of this stay."""
        self.swapped_bytes += report.swapped_bytes
        self.swap_seconds += report.swap_seconds
        return Rates(self.worker, self.swapped_bytes / self.swap_seconds, 0.0)


def objection(
    greeting: Greeting, weights_digest: bytes | None, vocab_size: int, present: Set[str]
) -> tuple[wire.RefusalReason, str] | None:
    """Why a worker may not join, or None. `present`: the ids of those that are here."""
    worker = greeting.joined.worker
    if greeting.protocol_major != wire.PROTOCOL_MAJOR:
        mine, theirs = wire.PROTOCOL_MAJOR, greeting.protocol_major
        return wire.REFUSED_PROTOCOL, f"the scheduler speaks step protocol {mine}, the worker {theirs}"
    if weights_digest is not None and greeting.weights_digest != weights_digest:
        return wire.REFUSED_WEIGHTS, "the worker has other weights than the model served here"
    problem = _geometry_problem(greeting.joined, vocab_size)
    if problem is not None:
        return wire.REFUSED_GEOMETRY, problem
    if worker in present:
        return wire.REFUSED_WORKER_ID, f"a worker named {worker} is here already"
    return None


def _geometry_problem(joined: Joined, vocab_size: int) -> str | None:
    """What makes the pool of a Hello too large to account for, or its model another one."""
    for name, value, most in (
        ("device pages", joined.device_pages, limits.MAX_WORKER_PAGES),
        ("host pages", joined.host_pages, limits.MAX_WORKER_PAGES),
        ("slots", joined.max_slots, limits.MAX_WORKER_SLOTS),
        ("tokens of context", joined.max_context, limits.MAX_CONTEXT_TOKENS),
        ("tokens of a step", joined.max_step_tokens, limits.MAX_CONTEXT_TOKENS),
        ("tokens of a page", joined.page_size, limits.MAX_CONTEXT_TOKENS),
    ):
        if value > most:
            return f"the worker has {value} {name}; {most} is the most"
    if joined.vocab_size < vocab_size:
        return f"the worker knows {joined.vocab_size} tokens, the served model has {vocab_size}"
    return None
