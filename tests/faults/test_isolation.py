"""What goes wrong in one worker or with one request stays there: others get their answers, and health says what is so."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from octavo_client import AsyncClient
from octavo_client.errors import Overloaded, ServerFault

from tests.doubles.tiny_model import make_tiny_model
from tests.faults.cluster import Cluster, cluster
from tests.faults.ills import MARK
from tests.faults.streams import Answer, Asked, Tally, ask, check, some_requests
from tests.faults.worker import PHASES
from tests.patience import PATIENCE

SERVICE = "octavo.v1.InferenceService"
MARKED = Asked((MARK, *range(3, 60)), seed=1, temperature=0.0, n=1, max_tokens=8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "model")


class Health:
    """What the health service says of the model, as it changes."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.aio.insecure_channel(address)
        self.watch = health_pb2_grpc.HealthStub(self.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))

    async def until(self, is_serving: bool) -> None:
        wanted = health_pb2.HealthCheckResponse.SERVING if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        async with asyncio.timeout(PATIENCE):
            while (await self.watch.read()).status != wanted:
                pass


@asynccontextmanager
async def watched(made: Cluster) -> AsyncIterator[tuple[AsyncClient, Health]]:
    async with AsyncClient(made.address) as client:
        health = Health(made.address)
        try:
            yield client, health
        finally:
            health.watch.cancel()
            await health.channel.close()


async def learn(client: AsyncClient, requests: list[Asked]) -> dict[Asked, Answer]:
    return {asked: await ask(client, asked, Tally()) for asked in requests}


async def check_all(client: AsyncClient, truth: dict[Asked, Answer], tally: Tally) -> None:
    await asyncio.gather(*(check(client, asked, answer, tally) for asked, answer in truth.items()))


def assert_unharmed(tally: Tally, ended: int) -> None:
    assert tally.errors == []
    assert (tally.ended, tally.lost, tally.duplicated, tally.changed) == (ended, 0, 0, 0)


def lines_with(made: Cluster, words: str) -> list[str]:
    return [line for _, line in made.lines if words in line]


def marked_steps(made: Cluster) -> int:
    return made.kill_log.read_text().count("marked")


async def test_EC01_EC02_EC04_a_prompt_that_breaks_every_step_is_tried_three_times_and_ends_with_an_error_and_some_lines(
    model: Path, tmp_path: Path
) -> None:
    with cluster(model, tmp_path, "real") as made:
        await asyncio.to_thread(made.start_worker, "poison")
        async with watched(made) as (client, _):
            truth, tally = await learn(client, some_requests(6)), Tally()
            others = asyncio.create_task(check_all(client, truth, tally))
            with pytest.raises(ServerFault, match="could not compute this request"):
                await ask(client, MARKED, Tally())
            await others
            assert_unharmed(tally, 6)
            assert marked_steps(made) == 3
            for number in range(3):  # each alone, and no more of them than any other
                with pytest.raises(ServerFault):
                    await ask(client, MARKED, Tally())
                assert marked_steps(made) <= 3 * (number + 2)
            assert len(lines_with(made, "refused step")) == marked_steps(made)
            assert len(made.lines) <= 6 * 4, "six lines of log for each request"


async def test_EC06_a_worker_without_memory_for_a_step_lives_and_takes_smaller_ones(
    model: Path, tmp_path: Path
) -> None:
    with cluster(model, tmp_path, "real") as made:
        await asyncio.to_thread(made.start_worker, "never")
        async with watched(made) as (client, health):
            truth = await learn(client, some_requests(12))
            await health.until(is_serving=True)
            made.stop_worker("w1")
            await health.until(is_serving=False)
            name = await asyncio.to_thread(made.start_worker, "short of memory", 20)
            tally = Tally()
            others = asyncio.create_task(check_all(client, truth, tally))
            with pytest.raises(Overloaded, match="not the memory"):
                await ask(client, MARKED, Tally())
            await others
            assert_unharmed(tally, 12)
            assert 3 <= marked_steps(made) <= 6, (
                "smaller and smaller ones, and one call: the client is told not to retry"
            )
            assert lines_with(made, "REASON_OUT_OF_MEMORY: step")
            assert made.workers[name].poll() is None
            assert not lines_with(made, f"worker {name} is gone")


async def test_EC12_a_worker_that_fails_every_step_gets_none_until_one_of_its_own_has_passed(
    model: Path, tmp_path: Path
) -> None:
    asked = some_requests(1)[0]
    with cluster(model, tmp_path, "real") as made:
        await asyncio.to_thread(made.start_worker, "never")
        async with watched(made) as (client, health):
            truth = await learn(client, [asked])
            await health.until(is_serving=True)
            made.stop_worker("w1")
            await health.until(is_serving=False)
            name = await asyncio.to_thread(made.start_worker, "broken")
            await health.until(is_serving=True)
            with pytest.raises(ServerFault):
                await ask(client, asked, Tally())
            tally = Tally()
            waiting = asyncio.create_task(check_all(client, truth, tally))
            await health.until(is_serving=False)
            assert await asyncio.to_thread(made.gone, name, 0.0) is not None
            num_steps = len(lines_with(made, "refused step"))
            assert num_steps == 4, "after these it is sent away"
            (tmp_path / "well").touch()
            await health.until(is_serving=True)
            await waiting
            assert_unharmed(tally, 1)
            assert len(lines_with(made, "refused step")) == num_steps


async def test_EC05_EC08_EC09_when_the_only_worker_is_killed_health_says_so_and_all_streams_go_on_with_the_next(
    model: Path, tmp_path: Path
) -> None:
    with cluster(model, tmp_path, "paper") as made:
        await asyncio.to_thread(made.start_worker)
        async with watched(made) as (client, health):
            truth = await learn(client, some_requests(8, max_tokens=60))
            await health.until(is_serving=True)
            made.stop_worker("w1")
            await health.until(is_serving=False)
            for number, phase in enumerate(PHASES):
                tally = Tally()
                await asyncio.to_thread(made.start_worker, phase, 20 + number)
                await health.until(is_serving=True)
                streams = asyncio.create_task(check_all(client, truth, tally))
                await health.until(is_serving=False)
                late = asyncio.create_task(check_all(client, dict([*truth.items()][:1]), tally))
                assert not streams.done()
                sound = await asyncio.to_thread(made.start_worker)
                await health.until(is_serving=True)
                await asyncio.gather(streams, late)
                assert_unharmed(tally, 9)
                made.reap()
                made.stop_worker(sound)
                await health.until(is_serving=False)
            assert [phase for _, _, phase in made.kills()] == list(PHASES)


async def test_EC10_a_worker_that_stands_still_is_no_longer_served_by_and_its_streams_go_on_with_the_next(
    model: Path, tmp_path: Path
) -> None:
    with cluster(model, tmp_path, "paper") as made:
        name = await asyncio.to_thread(made.start_worker)
        async with watched(made) as (client, health):
            truth, tally = await learn(client, some_requests(4, max_tokens=200)), Tally()
            await health.until(is_serving=True)
            streams = asyncio.create_task(check_all(client, truth, tally))
            while not any(worker.running for worker in (await client.status()).workers):
                await asyncio.sleep(0.005)
            os.kill(made.workers[name].pid, signal.SIGSTOP)
            await health.until(is_serving=False)
            assert lines_with(made, f"worker {name} is gone: its step takes too long")
            await asyncio.to_thread(made.start_worker)
            await health.until(is_serving=True)
            await streams
            assert_unharmed(tally, 4)


async def test_ZM04_while_one_of_two_workers_is_stopped_fifty_streams_lose_nothing_and_those_of_the_other_go_on(
    model: Path, tmp_path: Path
) -> None:
    with cluster(model, tmp_path, "paper") as made:
        for _ in range(2):
            await asyncio.to_thread(made.start_worker)
        async with watched(made) as (client, _):
            truth, tally = await learn(client, some_requests(10, max_tokens=80)), Tally()
            streams = [asyncio.create_task(check_all(client, truth, tally)) for _ in range(5)]
            while not all(worker.running for worker in (await client.status()).workers):
                await asyncio.sleep(0.005)
            at = time.monotonic()
            os.kill(made.workers["w1"].pid, signal.SIGSTOP)
            seen = asyncio.create_task(asyncio.to_thread(made.gone, "w1", at))
            before = await steps_of(client, "w2")
            while not seen.done() and await steps_of(client, "w2") < before + 20:
                await asyncio.sleep(0.01)
            assert not seen.done(), "the other worker's steps go on before the stopped one is given up"
            await asyncio.gather(*streams)
            assert await seen is not None
            assert_unharmed(tally, 50)


async def steps_of(client: AsyncClient, name: str) -> int:
    return next(worker.step for worker in (await client.status()).workers if worker.worker_id == name)
