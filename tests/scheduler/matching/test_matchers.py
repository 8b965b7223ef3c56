"""Matchers follow what the core says, whatever becomes of the process that does the work."""

import asyncio
import signal
from collections.abc import AsyncIterator
from queue import SimpleQueue
from typing import Any

import pytest
from octavo_scheduler import errors
from octavo_scheduler.core.events import Committed, Event, Finished, Masked, Output
from octavo_scheduler.core.request import FinishReason
from octavo_scheduler.matching.constraint import Constraint, one_of
from octavo_scheduler.matching.helper import Helper, HelperLost
from octavo_scheduler.matching.matchers import Matchers
from octavo_scheduler.model import ServedModel

from tests.patience import PATIENCE

WORDS = Constraint("regex", "[a-z ]{1,20}")
POISON = Constraint("regex", "poison")


class Told:
    """In place of a core: keeps the events that it is told."""

    def __init__(self) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()

    def apply(self, event: Event, now: float) -> list[Output]:
        self.events.put(event)
        return []

    async def masks(self, count: int) -> list[Masked]:
        found = [await asyncio.to_thread(self.events.get, timeout=PATIENCE) for _ in range(count)]
        assert self.events.empty()
        return [event for event in found if isinstance(event, Masked)]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def matchers(model: ServedModel, told: Told) -> AsyncIterator[Matchers]:
    made = Matchers(model, lambda command: command(told, 0.0))  # type: ignore[arg-type]
    yield made
    made.close()


def said(run: str, branch: int, position: int, token: int) -> Committed:
    return Committed(run, branch, position, token)


async def test_each_committed_token_brings_the_next_mask_and_those_of_a_step_come_together(
    matchers: Matchers, told: Told, model: ServedModel
) -> None:
    first = await matchers.begin("r", WORDS, {0: [], 1: []})
    assert [(m.branch, m.position) for m in first] == [(0, 0), (1, 0)]
    assert first[0].mask == first[1].mask
    a, b = model.vocabulary.encode("a")[0], model.vocabulary.encode("the")[0]
    matchers.follow([said("r", 0, 0, a), said("other", 0, 0, a), said("r", 1, 0, b)])
    masks = await told.masks(2)
    assert [(m.request, m.branch, m.position) for m in masks] == [("r", 0, 1), ("r", 1, 1)]
    again = await matchers.begin("again", WORDS, {0: [a], 1: [b]})
    assert [m.mask for m in again] == [m.mask for m in masks]


async def test_a_branch_that_ended_and_a_run_that_nobody_waits_for_are_followed_no_longer(
    matchers: Matchers, told: Told, model: ServedModel
) -> None:
    a = model.vocabulary.encode("a")[0]
    for run in ("r", "s"):
        await matchers.begin(run, WORDS, {0: [], 1: []})
    matchers.end("s")
    end = Finished("r", 0, FinishReason.LENGTH, 1, 0)
    matchers.follow([said("r", 0, 0, a), end, said("r", 1, 0, a), said("s", 0, 0, a)])
    assert [(m.request, m.branch) for m in await told.masks(1)] == [("r", 1)]


async def test_a_constraint_that_does_not_compile_is_refused_and_the_next_one_is_not(matchers: Matchers) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"constraint\.regex: .*unclosed group"):
        await matchers.begin("r", Constraint("regex", "("), {0: []})
    assert await matchers.begin("r", WORDS, {0: []})


async def test_a_beginning_that_breaks_the_constraint_is_refused(matchers: Matchers, model: ServedModel) -> None:
    with pytest.raises(errors.InvalidRequest, match="does not allow token 0 of what was answered"):
        await matchers.begin("r", one_of(["yes", "no"]), {0: model.vocabulary.encode("the")})


async def test_a_helper_that_was_killed_is_started_again_and_knows_all_that_was_committed(
    matchers: Matchers, told: Told, model: ServedModel
) -> None:
    a = model.vocabulary.encode("a")[0]
    for run in ("r", "s"):
        await matchers.begin(run, WORDS, {0: []})
    matchers.follow([said("r", 0, 0, a)])
    await told.masks(1)
    assert matchers.helper.process is not None
    matchers.helper.process.kill()
    matchers.helper.process.wait()
    matchers.follow([said("r", 0, 1, a)])
    masks = {m.request: m for m in await told.masks(2)}
    assert (masks["r"].position, masks["s"].position) == (2, 0)
    fresh = await matchers.begin("fresh", WORDS, {0: [a, a]})
    assert masks["r"].mask == fresh[0].mask


class Mortal(Helper):
    """Dies whenever it is to follow the poison, and counts how often."""

    num_deaths = 0

    def ask(self, head: dict[str, Any], seconds: float) -> tuple[dict[str, Any], bytes]:
        if any(text == POISON.text for _, _, text, _ in head.get("begin", ())):
            self.num_deaths += 1
            raise HelperLost("poison")
        return super().ask(head, seconds)


async def test_a_branch_of_which_helpers_die_ends_alone(matchers: Matchers, told: Told, model: ServedModel) -> None:
    a = model.vocabulary.encode("a")[0]
    await matchers.begin("r", WORDS, {0: []})
    matchers.helper.close()
    matchers.helper = mortal = Mortal(model)
    with pytest.raises(errors.InvalidRequest, match="its helper process died of it"):
        await matchers.begin("bad", POISON, {0: []})
    assert mortal.num_deaths == 2, "once with others, once alone"
    (again,) = await told.masks(1)
    assert (again.request, again.position) == ("r", 0)
    matchers.follow([said("r", 0, 0, a)])
    assert [m.position for m in await told.masks(1)] == [1]


async def test_SO04_a_constraint_that_takes_too_long_is_refused_and_nothing_else_is_harmed(
    matchers: Matchers, monkeypatch: pytest.MonkeyPatch, told: Told, model: ServedModel
) -> None:
    await matchers.begin("r", WORDS, {0: []})
    monkeypatch.setattr("octavo_scheduler.limits.TRIAL_SECONDS", 0.2)
    assert matchers.trial.process is not None
    matchers.trial.process.send_signal(signal.SIGSTOP)
    with pytest.raises(errors.InvalidRequest, match="to compile"):
        await matchers.begin("slow", one_of(["slow"]), {0: []})
    monkeypatch.undo()
    matchers.follow([said("r", 0, 0, model.vocabulary.encode("a")[0])])
    assert [m.position for m in await told.masks(1)] == [1]
    assert await matchers.begin("fine", one_of(["slow"]), {0: []})
