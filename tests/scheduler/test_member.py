"""How long a step may take."""

from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.member import STEP_LEASE_SECONDS, Pace


def plan(*tokens: int, swap_in: int = 0) -> StepPlan:
    return StepPlan("w", 1, row_tokens=list(tokens), swap_in=[(i, i) for i in range(swap_in)])


def paced(*steps: tuple[int, float]) -> Pace:
    """After steps of (tokens, seconds)."""
    pace = Pace()
    for tokens, seconds in steps:
        pace.note(tokens, seconds)
    return pace


def test_the_first_plan_and_one_much_larger_than_all_before_have_a_minute() -> None:
    assert Pace().lease(plan(1)) == STEP_LEASE_SECONDS
    assert paced((8, 0.1)).lease(plan(16)) < STEP_LEASE_SECONDS
    assert paced((8, 0.1)).lease(plan(17)) == STEP_LEASE_SECONDS


def test_a_plan_that_moves_pages_has_a_minute() -> None:
    assert paced((8, 0.1)).lease(plan(8, swap_in=1)) == STEP_LEASE_SECONDS


def test_slow_steps_are_given_more_by_the_slowest_lately() -> None:
    pace = paced((4, 2.0))
    assert pace.lease(plan(4)) == 16
    for _ in range(100):
        pace.note(4, 0.04)
    assert pace.lease(plan(4)) == 2
