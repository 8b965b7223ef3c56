"""What is counted for those who watch: how long things took, how often they came. Written by one thread each, read by any.

A value that comes for many tokens at once is noted once, with how many they were: a step costs a few additions, not a few
for each of its tokens.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from octavo_scheduler import errors
from octavo_scheduler.answer import Begin, End
from octavo_scheduler.core.events import Committed, Finished, Output
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import FinishReason

# The bounds of these are those that dashboards of other servers expect.
FIRST_TOKEN_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
TOKEN_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
REQUEST_BOUNDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
LENGTH_BOUNDS = tuple(float(1 << power) for power in range(18))
STEP_BOUNDS = tuple(factor * 10.0**power for power in range(-4, 2) for factor in (1, 2.5, 5))

OUTCOMES = {
    errors.Overloaded: "overloaded",
    errors.DeadlineExceeded: "deadline",
    errors.Unavailable: "unavailable",
    errors.RequestFailed: "failed",
}
INVALID = "invalid"
"""Outcome of every other refusal."""
REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.CANCELLED: "aborted"}
ENDINGS = (*REASONS.values(), "cancelled", *OUTCOMES.values(), INVALID)
"""All outcomes."""


class Histogram:
    """How often values fell between bounds. A value belongs to the first bound that it does not exceed."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def note(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count


@dataclass
class StepTally:
    """Kept by the loop's thread."""

    step_tokens: Histogram = field(default_factory=lambda: Histogram(LENGTH_BOUNDS))
    inter_token: Histogram = field(default_factory=lambda: Histogram(TOKEN_BOUNDS))
    workers_joined: int = 0
    swapped_out_bytes: int = 0
    swapped_in_bytes: int = 0
    swap_seconds: float = 0.0
    _came_at: dict[tuple[str, int], float] = field(default_factory=dict)
    """The last token of each branch that has any and has not ended."""

    def planned(self, plan: StepPlan, page_bytes: int) -> None:
        """A plan is on its way."""
        self.swapped_out_bytes += len(plan.swap_out) * page_bytes
        self.swapped_in_bytes += len(plan.swap_in) * page_bytes
        if plan.row_tokens:
            self.step_tokens.note(sum(plan.row_tokens))

    def delivered(self, outputs: Sequence[Output], now: float) -> None:
        """Outputs of one turn. Most of its tokens have waited for the same time, so there are few different gaps."""
        came_at = self._came_at
        gaps: dict[float, int] = {}
        for output in outputs:
            if type(output) is Committed:
                branch = output[:2]
                before = came_at.get(branch)
                came_at[branch] = now
                if before is not None:
                    gaps[before] = gaps.get(before, 0) + 1
            elif type(output) is Finished:
                came_at.pop(output[:2], None)
        for before, count in gaps.items():
            self.inter_token.note(now - before, count)


class Course:
    """One request on its way through the front."""

    def __init__(self, tally: "RequestTally") -> None:
        self._tally = tally
        self._arrived_at = time.monotonic()
        self.is_ended = False

    def note(self, event: Begin | End) -> None:
        """Its first event, or its last."""
        if isinstance(event, Begin):
            self._tally.begun(event, time.monotonic() - self._arrived_at)
        else:
            self.is_ended = True
            self._tally.ended(event)


class RequestTally:
    """Kept by the event loop."""

    def __init__(self) -> None:
        self.first_token = Histogram(FIRST_TOKEN_BOUNDS)
        self.queue, self.prefill, self.decode, self.total = (Histogram(REQUEST_BOUNDS) for _ in range(4))
        self.token = Histogram(TOKEN_BOUNDS)
        self.prompt_tokens, self.answer_tokens = Histogram(LENGTH_BOUNDS), Histogram(LENGTH_BOUNDS)
        self.outcomes = Counter(dict.fromkeys(ENDINGS, 0))
        self.cut_off = 0
        self.prefix_queries = self.prefix_hits = 0

    @contextmanager
    def request(self) -> Iterator[Course]:
        """For as long as a request is answered; how it ends is counted."""
        course = Course(self)
        try:
            yield course
        except errors.RequestError as error:
            self._refused(error)
            raise
        except BaseException:  # whoever read it has left
            self.outcomes["cancelled"] += not course.is_ended
            raise

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """For as long as a request is read; if it is refused, that is counted."""
        try:
            yield
        except errors.RequestError as error:
            self._refused(error)
            raise

    def _refused(self, error: errors.RequestError) -> None:
        self.outcomes[OUTCOMES.get(type(error), INVALID)] += 1

    def begun(self, begin: Begin, seconds: float) -> None:
        self.first_token.note(seconds)
        self.prefix_queries += begin.prompt_tokens
        self.prefix_hits += begin.cached_tokens
        self.queue.note(begin.queued)
        self.prompt_tokens.note(begin.prompt_tokens)

    def ended(self, end: End) -> None:
        reasons = {branch.reason for branch in end.branches}
        self.outcomes[next(name for reason, name in reversed(REASONS.items()) if reason in reasons)] += 1
        decode = end.total_seconds - end.first_token_seconds
        self.prefill.note(max(0.0, end.first_token_seconds - end.queued))
        self.decode.note(decode)
        self.total.note(end.total_seconds)
        self.answer_tokens.note(end.completion_tokens)
        if end.completion_tokens > 1:
            self.token.note(decode / (end.completion_tokens - 1))
