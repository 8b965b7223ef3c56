"""The runner over a device whose work is late: two plans in flight, swaps beside steps, graphs, buckets.

The device is paper: Triton's kernels in its interpreter, done only when somebody waits. What was not fenced shows as wrong
tokens. The truth is the reference, one plan after the other.
"""

from pathlib import Path
from typing import Any

import pytest
from octavo.v1 import step_pb2 as wire
from octavo_kernels.triton.door import open_door
from octavo_kernels.triton.paper import Paper
from octavo_worker import runner as module
from octavo_worker.config import WorkerConfig
from octavo_worker.errors import PlanRefused, Reason
from octavo_worker.runner import Runner, build_runner

from tests.worker.late import PROMPTS, numbered, one_after_the_other, two_in_flight
from tests.worker.plans import growth, moves, new_slots, rows, tokens_of

LATE = [(True, True), (True, False), (False, True)]


def make(tiny: Path, kernels: str) -> Runner:
    sizes: dict[str, Any] = {"pages": 24, "host_pages": 12, "max_context": 96, "max_slots": 6, "max_step_tokens": 40}
    return build_runner(WorkerConfig(model=tiny, kernels=kernels, dtype="float32", **sizes))


@pytest.fixture
def paper() -> Paper:
    return Paper()


def late_runner(tiny: Path, monkeypatch: pytest.MonkeyPatch, paper: Paper) -> Runner:
    monkeypatch.setattr(module, "pick_kernels", lambda config: open_door(paper))
    return make(tiny, "triton")


@pytest.mark.parametrize(("is_main_late", "is_side_late"), LATE)
def test_two_plans_in_flight_on_a_late_device_give_the_tokens_of_the_reference(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, is_main_late: bool, is_side_late: bool
) -> None:
    truth = one_after_the_other(make(tiny, "reference"))
    paper = Paper(is_main_late=is_main_late, is_side_late=is_side_late)
    assert two_in_flight(late_runner(tiny, monkeypatch, paper)) == truth
    assert paper.captures > 0


def test_swaps_are_counted_and_timed_when_their_result_is_taken(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = late_runner(tiny, monkeypatch, Paper(is_main_late=True, is_side_late=True))
    pending = runner.submit(wire.StepPlan(step=1, swap_out=moves({1: 1, 2: 2})))
    assert not pending.tokens.is_there()
    result = runner.result(pending)
    assert (result.swapped_bytes, result.swap_seconds > 0) == (2 * runner.cache.geometry.page_bytes, True)


def test_a_room_is_captured_the_second_time_and_then_replayed(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, paper: Paper
) -> None:
    runner = late_runner(tiny, monkeypatch, paper)
    captures = []
    tables = growth({slot: [1 + 3 * slot, 2 + 3 * slot] for slot in PROMPTS})
    runner.execute(
        wire.StepPlan(
            step=1, new_slots=new_slots(PROMPTS), growth=tables, rows=rows(dict.fromkeys(PROMPTS, 4), [0] * 4)
        )
    )
    for step, slots in enumerate([(0, 1, 2, 3), (0, 1, 2), (3, 2, 1, 0), (0, 1)], 2):
        runner.execute(wire.StepPlan(step=step, rows=rows(dict.fromkeys(slots, 1), [0] * len(slots))))
        captures.append(paper.captures)
    assert captures == [0, 1, 1, 1]  # three and four rows share a room; two have their own


def test_a_plan_that_is_refused_leaves_the_one_in_flight_alone(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = late_runner(tiny, monkeypatch, Paper(is_main_late=True))
    pending = runner.submit(numbered()[0])
    with pytest.raises(PlanRefused) as refusal:
        runner.submit(wire.StepPlan(step=2, rows=rows({5: 1})))
    assert refusal.value.reason is Reason.INVALID
    assert tokens_of(runner.result(pending)) == tokens_of(make(tiny, "reference").execute(numbered()[0]))
