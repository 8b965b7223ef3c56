"""What a worker asks of its group, answered for a worker that has none."""

from typing import Protocol

from octavo_kernels.ops import Ops

from octavo_worker.group.shard import WHOLE, Shard


class Group(Protocol):
    """The ranks that make up one worker."""

    @property
    def shard(self) -> Shard:
        """The part of the model that belongs to this rank."""

    def joined(self, ops: Ops) -> Ops:
        """The kernels, with what they exchange between ranks."""

    def least(self, *counts: int) -> tuple[int, ...]:
        """Of each count the smallest that any rank has. All ranks ask at once."""


class Alone:
    """A group of one."""

    shard = WHOLE

    def joined(self, ops: Ops) -> Ops:
        return ops

    def least(self, *counts: int) -> tuple[int, ...]:
        return counts


ALONE = Alone()
