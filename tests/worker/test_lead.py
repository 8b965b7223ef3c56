"""Rank 0 and another rank, which obeys its orders in a thread: plans in flight, refusals, new epochs."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Queue

import pytest
from octavo.v1 import step_pb2 as wire
from octavo_worker.config import WorkerConfig
from octavo_worker.errors import GroupLost, PlanRefused
from octavo_worker.group.lead import END, PLAN, RESULT, Follower, Lead
from octavo_worker.group.shard import Shard
from octavo_worker.runner import build_runner

from tests.doubles.rank_threads import RankAtTable, Table
from tests.patience import PATIENCE
from tests.worker.plans import Driver, growth, new_slots, rows, tokens_of, uint16

PROMPT = list(range(3, 20))


def first() -> wire.StepPlan:
    """A prompt."""
    prompt, tables = new_slots({0: PROMPT}), growth({0: [4, 2]})
    return wire.StepPlan(step=1, new_slots=prompt, growth=tables, rows=rows({0: len(PROMPT)}))


class RankWithOrders(RankAtTable):
    """Orders go through a queue."""

    orders: Queue[bytes]

    def tell(self, order: bytes) -> None:
        self.orders.put(order)

    def hear(self) -> bytes:
        return self.orders.get(timeout=PATIENCE)


class Pair:
    """A lead here and a follower in a thread."""

    def __init__(self, model: Path) -> None:
        config = WorkerConfig(model=model, kernels="reference", dtype="float32", pages=16, max_context=64)
        table, orders = Table(2), Queue[bytes]()
        ranks = [RankWithOrders(table, Shard(rank, 2)) for rank in range(2)]
        for each in ranks:
            each.orders = orders
        self.threads = ThreadPoolExecutor(2)
        made = self.threads.submit(build_runner, config, group=ranks[1])
        lead = build_runner(config, group=ranks[0], make=partial(Lead, ranks[0]))
        assert isinstance(lead, Lead)
        self.lead, self.follower = lead, Follower(ranks[1], made.result())
        self.life = self.threads.submit(self.follower.follow)


@pytest.fixture
def pair(tiny: Path) -> Iterator[Pair]:
    made = Pair(tiny)
    yield made
    made.lead.ranks.tell(END)
    made.threads.shutdown()


def test_two_plans_in_flight_reach_all_ranks_in_order(pair: Pair, tiny: Path) -> None:
    alone = build_runner(WorkerConfig(model=tiny, kernels="reference", dtype="float32", pages=16, max_context=64))
    truth = Driver(alone)
    answers = [tokens_of(alone.execute(first()))]
    truth.step = 1
    answers += [*(truth.send(rows=wire.Rows(slot=uint16(0))) for _ in range(2))]
    pending = [pair.lead.submit(first())]
    for step in (2, 3):
        pending.append(pair.lead.submit(wire.StepPlan(step=step, rows=wire.Rows(slot=uint16(0)))))
        assert tokens_of(pair.lead.result(pending.pop(0))) == answers[step - 2]
    assert tokens_of(pair.lead.result(pending.pop())) == answers[2]
    assert not pair.life.done()


def test_a_refused_plan_leaves_the_one_in_flight_and_the_group_alone(pair: Pair) -> None:
    pending = pair.lead.submit(first())
    with pytest.raises(PlanRefused, match="slot 5"):
        pair.lead.submit(wire.StepPlan(step=2, rows=wire.Rows(slot=uint16(5))))
    assert len(tokens_of(pair.lead.result(pending))) == 1
    pair.lead.reset()
    assert len(tokens_of(pair.lead.execute(first()))) == 1
    assert not pair.life.done()


def test_a_rank_that_refuses_alone_ends_the_group(pair: Pair) -> None:
    pair.follower.runner.last_step = 7  # as if it had lost count
    pair.lead.ranks.tell(PLAN + first().SerializeToString())
    pair.lead.ranks.tell(RESULT)
    with pytest.raises(GroupLost, match="rank 1 refused step 1, and rank 0 did not"):
        pair.life.result(timeout=PATIENCE)
