"""What the core makes of a worker's word on a step: its time, the size of the next one, and who is gone."""

from collections.abc import Iterator
from dataclasses import dataclass

from octavo_scheduler.core import Core, events
from octavo_scheduler.core.events import Event, Finished, Output
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.worker import Worker


@dataclass(frozen=True)
class Told:
    """A core that is about to hear of something."""

    workers: dict[str, Worker]
    budgets: dict[str, int]
    plan: StepPlan | None
    """In flight, of which the event speaks."""

    @classmethod
    def of(cls, core: Core, event: Event) -> "Told":
        budgets = {worker.id: worker.budget for worker in core.workers.values()}
        return cls(dict(core.workers), budgets, plan_of(core, event))

    def num_gone(self, core: Core) -> int:
        return sum(core.workers.get(name) is not worker for name, worker in self.workers.items())

    def broken(self, core: Core, event: Event, outputs: list[Output], now: float) -> Iterator[str]:
        if self.plan is None or not isinstance(event, events.StepDone | events.Nack):
            return
        worker, num_tokens = core.workers.get(event.worker), sum(self.plan.row_tokens)
        if worker is None or any(isinstance(output, Finished) for output in outputs):
            return
        if isinstance(event, events.Nack):
            # After a step that ran out of memory an eighth of its tokens is tried next, after any other as many as before.
            is_smaller = event.is_memory and num_tokens > 1
            if worker.budget != (max(num_tokens // 8, 1) if is_smaller else self.budgets[worker.id]):
                yield f"a step of {num_tokens} tokens failed, and the next one may have {worker.budget}"
        elif not worker.full and not 0 <= worker.step_seconds <= now - self.plan.made_at:
            yield f"a plan made {now - self.plan.made_at} s ago is said to have taken {worker.step_seconds} s"


def plan_of(core: Core, event: Event) -> StepPlan | None:
    """A result speaks of the oldest plan in flight, or of none; a Nack of any of them, or of the oldest if it got lost."""
    if not isinstance(event, events.StepDone | events.Nack):
        return None
    worker = core.workers.get(event.worker)
    in_flight = list(worker.in_flight) if worker is not None else []
    of_step = next((plan for plan in in_flight if plan.step == event.step), None)
    if isinstance(event, events.StepDone):
        return of_step if of_step is not None and of_step is in_flight[0] else None
    return of_step or next((plan for plan in in_flight[:1] if plan.step <= event.step), None)
