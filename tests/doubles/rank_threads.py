"""A tensor-parallel group in one process: each rank a runner in a thread of its own, with a table where sockets would be.

What ranks do with what they exchange is the production code; only the way there is not.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any, TypeVar

import torch
from octavo.v1 import step_pb2 as wire
from octavo_worker.config import WorkerConfig
from octavo_worker.group.lead import began, finished
from octavo_worker.group.ranks import Ranks
from octavo_worker.group.shard import Shard
from octavo_worker.runner import Runner, build_runner
from torch import Tensor

from tests.patience import PATIENCE

T = TypeVar("T")


class Table:
    """Where every rank lays down what it has and picks up what all have."""

    def __init__(self, size: int) -> None:
        self.barrier = Barrier(size, timeout=PATIENCE)
        self.places: list[Any] = [None] * size

    def exchange(self, rank: int, own: T) -> list[T]:
        self.places[rank] = own
        self.barrier.wait()
        found = list(self.places)
        self.barrier.wait()
        return found


class RankAtTable(Ranks):
    """One rank."""

    def __init__(self, table: Table, shard: Shard) -> None:
        self.table, self.shard, self.memory = table, shard, torch.empty(0)
        self.sums = 0

    def least(self, *counts: int) -> tuple[int, ...]:
        return tuple(min(each) for each in zip(*self.table.exchange(self.shard.rank, counts), strict=True))

    def gathered(self, own: Tensor, room: Tensor) -> list[Tensor]:
        assert room.shape == (self.shard.size, *own.shape)
        for place, part in zip(room, self.table.exchange(self.shard.rank, own.clone()), strict=True):
            place.copy_(part)
        return list(room)

    def all_reduce(self, rows: Any, x: Any) -> None:
        self.sums += 1
        super().all_reduce(rows, x)


class GroupInThreads:
    """Executes a plan on all ranks at once; the answer is that of rank 0."""

    def __init__(self, config: WorkerConfig, size: int, **of_rank_1: object) -> None:
        self.config = config
        table = Table(size)
        self.ranks = [RankAtTable(table, Shard(rank, size)) for rank in range(size)]
        self.threads = ThreadPoolExecutor(size)
        configs = {1: replace(config, **of_rank_1)}  # type: ignore[arg-type]
        self.runners = self.on_all(
            lambda rank: build_runner(configs.get(rank.shard.rank, config), group=rank), self.ranks
        )

    def on_all(self, act: Callable[[Any], T], each: list[Any]) -> list[T]:
        return list(self.threads.map(act, each, timeout=2 * PATIENCE))

    def execute(self, plan: wire.StepPlan) -> wire.StepResult:
        def run(pair: tuple[RankAtTable, Runner]) -> wire.StepResult:
            ranks, runner = pair
            return finished(ranks, runner.result, began(ranks, runner.submit, plan))

        return self.on_all(run, list(zip(self.ranks, self.runners, strict=True)))[0]

    def reset(self) -> None:
        for runner in self.runners:
            runner.reset()
