"""The scheduler under seeded faults: a share of what `make simulate` runs, and whether the simulation can be relied on."""

import logging
from collections.abc import Callable, Iterator

import pytest
from octavo_scheduler.core import events
from octavo_scheduler.core.core import Core
from octavo_scheduler.core.pages import PagePool

from tests.simulation.coverage import FAULTS, Coverage
from tests.simulation.violation import Violation
from tests.simulation.world import Outcome, World

BLOCKS = 8
SEEDS_PER_BLOCK = 50


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The loop warns of every worker that it loses."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_law_is_broken_and_every_answer_is_right(block: int) -> None:
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        outcome = World(seed).run()
        assert outcome.num_plans > 0


def test_every_kind_of_fault_takes_place() -> None:
    coverage = Coverage()
    for seed in range(200):
        World(seed, coverage=coverage).run()
    assert [kind for kind in FAULTS if not coverage.counts[f"fault: {kind}"]] == []


def test_when_faults_stop_every_request_ends_though_one_worker_is_left() -> None:
    for seed in range(200):
        World(seed, is_liveness=True).run()


def test_a_seed_tells_the_same_story_twice() -> None:
    def story(seed: int) -> tuple[Outcome, list[str]]:
        world, lines = World(seed), list[str]()
        world.core.tell = lines.append
        return world.run(), lines

    for seed in range(10):
        assert story(seed) == story(seed)


def run_seeds(count: int) -> None:
    for seed in range(count):
        World(seed).run()


def never_free(pool: PagePool, step: int) -> None:
    """A fence that is never lifted."""


def accept_anything(core: Core, event: events.StepDone, now: float) -> list[events.Output]:
    """A result is taken for the oldest step in flight, whatever step it names."""
    worker = core.workers[event.worker]
    if worker.in_flight:
        event = events.StepDone(event.worker, worker.in_flight[0].step, event.tokens)
    return real_step_done(core, event, now)


real_step_done = Core._step_done


@pytest.mark.parametrize(
    ("owner", "name", "mistake"), [(PagePool, "lift", never_free), (Core, "_step_done", accept_anything)]
)
def test_a_mistake_is_found_within_a_few_seeds(
    owner: type, name: str, mistake: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises(Violation):
        run_seeds(200)
