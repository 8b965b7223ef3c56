"""Plans that a scheduler sent, executed again by a runner alone: what the worker is worth without the service around it."""

import time
from dataclasses import dataclass
from pathlib import Path

from octavo.v1 import step_pb2
from octavo_scheduler.core.events import Committed, StepDone
from octavo_scheduler.event_log import Apply, EventLog, Plan, Submit, plan_digest
from octavo_scheduler.offline.rerun import moments
from octavo_scheduler.wire import Epoch, encode_plan
from octavo_worker.runner import Runner

EPOCH = Epoch(1, 1)
MOST_UNANSWERED = 2
"""Plans on their way when the scheduler was ended."""


@dataclass(frozen=True)
class Recording:
    """What one worker was sent, what it answered, and what came of that. `ids` in the order in which requests came."""

    plans: list[bytes]
    """Encoded SchedulerMessages, in order."""
    tokens: list[tuple[int, ...]]
    """What was sampled for each plan."""
    ids: list[list[int]]


def read_recording(path: Path) -> Recording:
    """From the log of a scheduler with one worker, recorded with tokens. Raises ValueError where log and plans differ."""
    log = EventLog(path)
    plans, tokens = [], []
    ids: dict[str, list[int]] = {}
    for moment in moments(log):
        match moment.entry:
            case Submit(spec=spec):
                ids[spec.id] = []
            case Plan(digest=digest) if moment.plan is not None:
                if digest != plan_digest(moment.plan, has_tokens=log.header.has_tokens):
                    raise ValueError(f"{path}: step {moment.plan.step} is not the plan that was recorded")
                plans.append(encode_plan(EPOCH, moment.plan))
            case Apply(event=StepDone(tokens=sampled)):
                tokens.append(sampled)
        for output in moment.outputs:
            if isinstance(output, Committed):
                ids[output.request].append(output.token)
    if not 0 <= len(plans) - len(tokens) <= MOST_UNANSWERED:
        raise ValueError(f"{path} has {len(plans)} plans and {len(tokens)} results")
    return Recording(plans[: len(tokens)], tokens, list(ids.values()))


@dataclass(frozen=True)
class Replayed:
    """How long the plans took, and in how many steps other tokens were sampled than in the recording."""

    seconds: float
    steps: int
    different_steps: int


def replay(runner: Runner, recording: Recording) -> Replayed:
    """Read and execute all plans, as the worker's link does, then compare. The runner starts empty."""
    runner.reset()
    started = time.perf_counter()
    results = [runner.execute(step_pb2.SchedulerMessage.FromString(frame).plan) for frame in recording.plans]
    seconds = time.perf_counter() - started
    sampled = (memoryview(result.token).cast("i").tolist() for result in results)
    different = sum(now != list(then) for now, then in zip(sampled, recording.tokens, strict=True))
    return Replayed(seconds, len(results), different)
