"""How long a step may take."""

from math import inf

from octavo_scheduler.core.plan import Constrained, StepPlan
from octavo_scheduler.core.policy import Account
from octavo_scheduler.core.request import Request, RequestSpec, Sequence
from octavo_scheduler.member import STEP_LEASE_SECONDS, Member, Pace, Size
from octavo_scheduler.wire import Epoch


def paced(*steps: tuple[int, int, float]) -> Pace:
    """After steps of (tokens, pages moved, seconds)."""
    pace = Pace()
    for tokens, moved, seconds in steps:
        pace.note(Size(tokens, moved), seconds)
    return pace


def test_the_size_of_a_plan_is_its_tokens_and_the_pages_that_it_moves() -> None:
    plan = StepPlan("w", 1, row_tokens=[3, 4], swap_in=[(1, 1)], swap_out=[(2, 2), (3, 3)], copy=[(4, 5)])
    assert Size.of(plan) == (7, 4)


def test_the_first_plan_and_one_much_larger_than_all_before_have_a_minute() -> None:
    assert Pace().lease(Size(1, 0)) == STEP_LEASE_SECONDS
    pace = paced((8, 2, 0.1))
    assert pace.lease(Size(16, 4)) < STEP_LEASE_SECONDS
    assert pace.lease(Size(17, 0)) == pace.lease(Size(1, 5)) == STEP_LEASE_SECONDS


def test_a_plan_may_take_eight_times_as_long_as_the_slowest_lately_and_two_seconds_at_least() -> None:
    pace = paced((4, 0, 2.0))
    assert pace.lease(Size(1, 0)) == 16
    for _ in range(100):
        pace.note(Size(4, 0), 0.04)
    assert pace.lease(Size(4, 0)) == 2


def test_the_lease_of_a_plan_that_was_sent_without_its_masks_begins_with_them() -> None:
    request = Request(RequestSpec(id="r", prompt=(4, 5)), 1, 0.0, Account("", 0, 1.0, 1.0))
    plan = StepPlan(
        "w", 7, row_tokens=[1], constrained=[Constrained(0, Sequence(request, 0, (0, 1, 0), [4, 5], 2, 8), 3)]
    )
    member = Member("w", b"peer", Epoch(1, 1), heard_at=0.0)
    member.note_sent(plan, 0.001, 10.0)
    assert member.lease_end == inf
    member.note_masks(6, 20.0)
    assert member.lease_end == inf, "these were another plan's"
    assert member.is_owed_masks(7)
    member.note_masks(7, 30.0)
    assert member.lease_end == 30.0 + STEP_LEASE_SECONDS
    assert not member.is_owed_masks(7)
