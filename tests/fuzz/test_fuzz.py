"""5,000 cases of each kind: nothing crashes and nothing refused changes anything. `make fuzz` runs many more."""

from collections.abc import Callable

import pytest
from octavo.v1 import step_pb2 as wire
from octavo_scheduler.core.events import Output
from octavo_scheduler.loop import Loop
from octavo_worker.runner import LateMasks, Pending, Runner

from tests.fuzz import files, frames, messages, plans
from tests.fuzz.findings import Findings
from tests.pools import memory

CASES = 5000
LEAST_SHARE = 0.1
"""Of cases that are refused, and of those that are not: else only one side of the door is tested."""


@pytest.mark.parametrize("kind", [frames.run, plans.run, messages.run, files.run], ids=lambda run: run.__module__)
def test_no_mutated_input_crashes_anything_or_changes_what_it_may_not(
    kind: Callable[[int, int], Findings], figure: Callable[[str], None]
) -> None:
    found = kind(0, CASES)
    figure(f"fuzz: {kind.__module__.rpartition('.')[2]}: {found}")
    assert (found.crashes, found.state_changes, found.problems) == (0, 0, [])
    assert found.cases == CASES
    assert min(found.accepted, found.refused) > LEAST_SHARE * CASES


class TrustingLoop(Loop):
    """Takes every frame for one of the worker that is here."""

    def _receive(self, peer: bytes, frame: bytes, now: float) -> list[Output]:
        return super()._receive(frames.FRIEND, frame, now)


class ForgetfulLoop(Loop):
    """Takes the epoch for granted."""

    def _receive(self, peer: bytes, frame: bytes, now: float) -> list[Output]:
        message, member = wire.WorkerMessage(), self.members.get(peer)
        try:
            message.MergeFromString(frame)
        except Exception:
            return super()._receive(peer, frame, now)
        if member is not None:
            message.epoch.boot_id, message.epoch.counter = member.epoch.boot_id, member.epoch.counter
        return super()._receive(peer, message.SerializeToString(), now)


class HastyRunner(Runner):
    """Forgets its slots before it has read the plan."""

    def submit(self, message: wire.StepPlan, masks: LateMasks | None = None) -> Pending:
        if message.full:
            self.slots.clear()
        return super().submit(message, masks)


class SloppyRunner(Runner):
    """Writes a page that no plan names."""

    def submit(self, message: wire.StepPlan, masks: LateMasks | None = None) -> Pending:
        memory(self.cache.pool)[plans.PAGES] = message.step % 50
        return super().submit(message, masks)


@pytest.mark.parametrize("loop", [TrustingLoop, ForgetfulLoop])
def test_a_loop_that_hears_the_wrong_is_found(loop: type[Loop]) -> None:
    assert frames.run(0, 3000, loop).state_changes


@pytest.mark.parametrize("runner", [HastyRunner, SloppyRunner])
def test_a_worker_that_changes_what_it_may_not_is_found(runner: type[Runner]) -> None:
    assert plans.run(0, 1000, runner).state_changes
