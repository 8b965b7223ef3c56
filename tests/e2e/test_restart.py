"""Schedulers that end, by force or in order, as real processes with real workers; and clients that were asked to resume."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from octavo_client import AsyncClient, SamplingParams
from octavo_client.errors import Unavailable
from octavo_client.results import Delta

from benchmarks.restart import Cluster, cluster, measure
from tests.patience import PATIENCE, until

SERVICE = "octavo.v1.InferenceService"


@pytest.fixture
def made() -> Iterator[Cluster]:
    with cluster(2, ["--grace", str(PATIENCE)]) as made:
        yield made


@asynccontextmanager
async def joined(made: Cluster, *, resume: bool = False) -> AsyncIterator[AsyncClient]:
    await made.until_bound()
    async with AsyncClient(made.address, resume=resume) as client:
        await made.until_joined(client)
        yield client


async def test_a_scheduler_that_is_killed_has_its_workers_back_and_all_streams_go_on_as_if_nothing_had_been(
    made: Cluster,
) -> None:
    """`make restart-check` with a quarter of the streams. Left alone, workers would notice only after ten seconds."""
    figures = await measure(made, 12, signal.SIGKILL)
    assert (figures["resumed"], figures["identical"]) == (12, 12)
    assert figures["workers_back_s"] <= 5


def params(number: int, max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0.8, seed=number)


async def read(
    client: AsyncClient, number: int, max_tokens: int, begun: asyncio.Event, resume: bool | None = None
) -> list[int]:
    tokens: list[int] = []
    async for event in client.stream([5, 6, 7 + number], params(number, max_tokens), resume=resume):
        if isinstance(event, Delta):
            tokens += event.token_ids
            begun.set()
    return tokens


async def test_DR01_DR02_after_SIGTERM_new_work_is_refused_and_what_runs_ends_before_the_process_does(
    made: Cluster,
) -> None:
    async with joined(made) as client, grpc.aio.insecure_channel(made.address) as channel:
        health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await health.read()).status == health_pb2.HealthCheckResponse.SERVING
        begun = [asyncio.Event() for _ in range(8)]
        reading = [asyncio.create_task(read(client, n, 1500, begun[n])) for n in range(8)]
        await asyncio.gather(*(each.wait() for each in begun))
        os.kill(made.scheduler.pid, signal.SIGTERM)
        assert (await health.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(Unavailable, match="the scheduler is shutting down"):
            await client.generate([1, 2], params(0, 4))
        assert not all(task.done() for task in reading)
        assert [len(tokens) for tokens in await asyncio.gather(*reading)] == [1500] * 8
        await until(lambda: made.scheduler.exit_code() is not None)
        assert made.scheduler.exit_code() == 0


async def test_DR01_a_worker_that_is_told_to_end_leaves_in_order_and_its_streams_go_on_elsewhere(made: Cluster) -> None:
    async with joined(made) as client:
        begun = [asyncio.Event() for _ in range(8)]
        reading = [asyncio.create_task(read(client, n, 600, begun[n])) for n in range(8)]
        await asyncio.gather(*(each.wait() for each in begun))
        os.kill(made.workers[0].pid, signal.SIGTERM)
        answers = await asyncio.gather(*reading)
        await until(lambda: made.workers[0].exit_code() is not None)
        assert made.workers[0].exit_code() == 0
        alone = [(await client.generate([5, 6, 7 + n], params(n, 600))).outputs[0].token_ids for n in range(8)]
        assert answers == alone


async def test_DR01_streams_that_outlast_the_grace_are_told_to_resume_and_go_on_with_the_next_scheduler(
    made: Cluster,
) -> None:
    made.scheduler_flags = ["--grace", "0.2"]
    os.kill(made.scheduler.pid, signal.SIGKILL)
    await until(lambda: made.scheduler.exit_code() is not None)
    made.start_scheduler()
    async with joined(made, resume=True) as client:
        begun = [asyncio.Event() for _ in range(2)]
        resumed = asyncio.create_task(read(client, 1, 1500, begun[0]))
        told = asyncio.create_task(read(client, 2, 1500, begun[1], resume=False))
        await asyncio.gather(*(each.wait() for each in begun))
        os.kill(made.scheduler.pid, signal.SIGTERM)
        with pytest.raises(Unavailable, match="ask again with resume_from"):
            await told
        await until(lambda: made.scheduler.exit_code() == 0)
        made.start_scheduler()
        tokens = await resumed
        assert tokens == (await client.generate([5, 6, 8], params(1, 1500))).outputs[0].token_ids
