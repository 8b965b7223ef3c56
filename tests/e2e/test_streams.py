"""Many streams through real processes: scheduler, worker, sockets, a real (tiny) model."""

import asyncio
from collections.abc import Iterator

import pytest
from octavo_client import AsyncClient, SamplingParams
from octavo_client.results import Delta, End, RequestOutput

from tests.doubles.tiny_model import make_tiny_model
from tests.patience import until
from tests.processes import serving

POOL = ("--page-size=16", "--pages=120", "--host-pages=60", "--max-slots=32", "--invariant")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A pool too small for 64 sequences at once, so that some wait and some are preempted."""
    with serving(make_tiny_model(tmp_path_factory.mktemp("tiny") / "m"), worker=POOL) as address:
        yield address


def prompt(number: int) -> list[int]:
    return [(number * 31 + 7 * n) % 256 + 3 for n in range(5 + number % 40)]


def params(number: int, max_tokens: int = 60) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.7, seed=number, ignore_eos=True)


async def assert_nothing_is_left(client: AsyncClient) -> None:
    """After the last result no page is held or fenced on either tier and every map is empty."""

    async def is_idle() -> bool:
        status = await client.status()
        (worker,) = status.workers
        is_free = worker.device.free + worker.device.cached == worker.device.total
        return is_free and not status.live_requests and not worker.plans_in_flight

    await until(is_idle)
    status = await client.status()
    (worker,) = status.workers
    assert worker.host.free + worker.host.cached == worker.host.total
    assert (worker.device.held, worker.device.fenced, worker.host.held, worker.host.fenced) == (0, 0, 0, 0)
    assert (worker.running, worker.swapped, status.waiting, status.live_requests) == (0, 0, 0, 0)
    assert status.counters.audit_violations == 0


async def test_64_streams_at_once_all_end_with_the_answer_they_have_alone(address: str) -> None:
    async with AsyncClient(address) as client:
        alone = [await client.generate(prompt(n), params(n)) for n in range(8)]
        together = await asyncio.gather(*(client.generate(prompt(n), params(n)) for n in range(64)))
        assert [o.outputs[0].token_ids for o in together[:8]] == [o.outputs[0].token_ids for o in alone]
        assert all(len(output.outputs[0].token_ids) == 60 for output in together)
        assert all(output.outputs[0].finish_reason == "length" for output in together)
        status = await client.status()
        assert status.counters.drops + status.counters.swaps > 0, "the pool is small enough to preempt"
        await assert_nothing_is_left(client)


async def test_of_100_streams_50_cancelled_mid_way_the_others_end_and_nothing_is_left(address: str) -> None:
    async def whole(client: AsyncClient, n: int) -> RequestOutput:
        return await client.generate(prompt(n), params(n, 40))

    async def cut(client: AsyncClient, n: int) -> int:
        seen = 0
        async for event in client.stream(prompt(n), params(n, 400)):
            assert not isinstance(event, End)
            if isinstance(event, Delta):
                seen += len(event.token_ids)
            if seen > n % 20:
                break
        return seen

    async with AsyncClient(address) as client:
        before = await client.status()
        wholes = asyncio.gather(*(whole(client, n) for n in range(0, 100, 2)))
        await asyncio.gather(*(cut(client, n) for n in range(1, 100, 2)))
        assert all(len(output.outputs[0].token_ids) == 40 for output in await wholes)
        await assert_nothing_is_left(client)
        after = await client.status()
        assert after.counters.cancelled - before.counters.cancelled == 50
        assert after.counters.ended - before.counters.ended == 100


async def test_the_next_request_is_served_after_all_that(address: str) -> None:
    async with AsyncClient(address) as client:
        assert len((await client.generate(prompt(1), params(1, 5))).outputs[0].token_ids) == 5
