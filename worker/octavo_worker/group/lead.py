"""Rank 0 speaks to the scheduler and hands on every plan; the other ranks do what they are told."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from zlib import crc32

from octavo_worker.batch import StepPlan, StepResult
from octavo_worker.errors import GroupLost, PlanRefused, Reason
from octavo_worker.group.ranks import Ranks
from octavo_worker.runner import Runner

PLAN, RESET, END = b"P", b"R", b"E"
"""The first byte of an order; a plan's own bytes follow."""
REFUSED = -1


class Lead(Runner):
    """The runner of rank 0: whatever it is asked to do the others do as well."""

    def __init__(self, ranks: Ranks, *parts: Any) -> None:
        super().__init__(*parts)
        self.ranks = ranks

    def reset(self) -> None:
        """A new epoch, on all ranks."""
        self.ranks.tell(RESET)
        super().reset()

    def execute(self, message: StepPlan) -> StepResult:
        """On all ranks; the result is there when all of them are done. Raises PlanRefused if all refuse, else GroupLost."""
        self.ranks.tell(PLAN + message.SerializeToString())
        return together(self.ranks, super().execute, message)


def follow(ranks: Ranks, runner: Runner) -> None:
    """A rank's life: do as rank 0 says until it says that this is the end."""
    while (order := ranks.hear()) != END:
        if order == RESET:
            runner.reset()
            continue
        with suppress(PlanRefused):  # rank 0 answers
            together(ranks, runner.execute, StepPlan.FromString(order.removeprefix(PLAN)))


def together(ranks: Ranks, execute: Callable[[StepPlan], StepResult], message: StepPlan) -> StepResult:
    """Execute a plan on one rank and wait until all have. They check it alike, so that all refuse it or none.

    A step that failed may have left the others waiting in an exchange, and pages that differ: the group cannot go on.
    """
    try:
        result = execute(message)
    except PlanRefused as refusal:
        if refusal.reason is Reason.FAILED:
            raise GroupLost(f"rank {ranks.shard.rank}: {refusal.message}") from refusal
        ranks.agree(message.step, REFUSED)
        raise
    ranks.agree(message.step, crc32(result.token))
    return result
