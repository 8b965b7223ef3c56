"""Rank 0 speaks to the scheduler and hands on every plan; the other ranks do what they are told."""

from collections import deque
from typing import Any
from zlib import crc32

from octavo_worker.batch import StepPlan, StepResult
from octavo_worker.errors import GroupLost, PlanRefused, Reason
from octavo_worker.group.ranks import Ranks
from octavo_worker.runner import LateMasks, Pending, Runner

PLAN, RESULT, REFUSAL, RESET, END = b"P", b"R", b"N", b"0", b"E"
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

    def submit(self, message: StepPlan, masks: LateMasks | None = None) -> Pending:
        """On all ranks, which take no late masks. Raises PlanRefused if all refuse, else GroupLost."""
        self.ranks.tell(PLAN + message.SerializeToString())
        try:
            return began(self.ranks, super().submit, message)
        except PlanRefused:
            self.ranks.tell(REFUSAL)
            self.ranks.agree(message.step, REFUSED)
            raise

    def result(self, pending: Pending) -> StepResult:
        """It is there when all ranks are done."""
        self.ranks.tell(RESULT)
        return finished(self.ranks, super().result, pending)


class Follower:
    """What the other ranks do."""

    def __init__(self, ranks: Ranks, runner: Runner) -> None:
        self.ranks, self.runner = ranks, runner
        self.pending: deque[Pending] = deque()
        self.refused: int | None = None  # step of the last plan, if it was refused

    def follow(self) -> None:
        """Do as rank 0 says until it says that this is the end."""
        while (order := self.ranks.hear()) != END:
            self.obey(order)

    def obey(self, order: bytes) -> None:
        """Raises GroupLost where this rank cannot do what rank 0 does."""
        if order == RESET:
            self.pending.clear()
            self.runner.reset()
        elif order == RESULT:
            if not self.pending:
                raise GroupLost(f"rank {self.ranks.shard.rank} refused step {self.refused}, and rank 0 did not")
            finished(self.ranks, self.runner.result, self.pending.popleft())
        elif order == REFUSAL:
            self.ranks.agree(-1 if self.refused is None else self.refused, REFUSED)
        else:
            self.begin(StepPlan.FromString(order.removeprefix(PLAN)))

    def begin(self, message: StepPlan) -> None:
        self.refused = None
        try:
            self.pending.append(began(self.ranks, self.runner.submit, message))
        except PlanRefused:  # rank 0 answers
            self.refused = message.step


def began(ranks: Ranks, submit: Any, message: StepPlan) -> Pending:
    """Submit on one rank. Plans are checked alike, so that all ranks refuse one or none.

    A step that failed may have left the others waiting in an exchange, and pages that differ: the group cannot go on.
    """
    try:
        pending: Pending = submit(message)
    except PlanRefused as refusal:
        if refusal.reason in (Reason.FAILED, Reason.OUT_OF_MEMORY):
            raise GroupLost(f"rank {ranks.shard.rank}: {refusal.message}") from refusal
        raise
    return pending


def finished(ranks: Ranks, take: Any, pending: Pending) -> StepResult:
    """Take a result on one rank, and wait until all have the same."""
    try:
        result: StepResult = take(pending)
    except PlanRefused as refusal:
        raise GroupLost(f"rank {ranks.shard.rank}: {refusal.message}") from refusal
    ranks.agree(pending.step, crc32(result.token))
    return result
