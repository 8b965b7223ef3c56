"""Long prompts while others stream: tokenising and checking them holds up nobody."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from octavo.v1 import inference_pb2 as pb
from octavo_scheduler.model import ServedModel

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker, answer
from tests.patience import until


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    """Of a model whose context is too long for its worker, so that the longest prompts are looked at and then refused."""
    worker = PaperWorker(page_size=16, pages=64)
    async with paper_service(replace(model, max_context=1 << 22), tmp_path, worker) as service:
        service.is_open.set()
        yield service


async def status_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    code: grpc.StatusCode = caught.value.code()
    return code


async def test_EL01_while_two_megabytes_are_tokenised_health_is_answered_and_others_stream(
    service: PaperService,
) -> None:
    text = "the and ing you are with this that " * (2_000_000 // 35)
    long = asyncio.create_task(status_of(service.stub.Generate(pb.GenerateRequest(prompt=pb.Prompt(text=text)))))
    await until(lambda: service.scheduler.front.num_aside == 1)
    async with grpc.aio.insecure_channel(service.scheduler.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        for number in range(4):
            assert (
                await health.Check(health_pb2.HealthCheckRequest())
            ).status == health_pb2.HealthCheckResponse.SERVING
            assert await service.ask(f"r{number}", [number, 5], 20) == answer([number, 5], 20)
    assert not long.done(), "all of that took place meanwhile"
    assert await long is grpc.StatusCode.INVALID_ARGUMENT


async def test_EL01_what_cannot_fit_is_refused_before_it_is_tokenised(service: PaperService) -> None:
    call = service.stub.Generate(pb.GenerateRequest(prompt=pb.Prompt(text="x" * (8 << 20) + "x")))
    assert await status_of(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_EL02_while_forty_prompts_of_50_000_tokens_are_checked_no_worker_is_taken_for_dead(
    service: PaperService,
) -> None:
    prompt = pb.Prompt(token_ids=pb.TokenIds(ids=[5] * 50_000))
    calls = [
        asyncio.create_task(status_of(service.stub.Generate(pb.GenerateRequest(prompt=prompt)))) for _ in range(40)
    ]
    answers = [await service.ask(f"r{number}", [number, 5], 20) for number in range(4)]
    assert answers == [answer([number, 5], 20) for number in range(4)]
    assert set(await asyncio.gather(*calls)) == {grpc.StatusCode.INVALID_ARGUMENT}
    counters = service.scheduler.loop.core.counters
    assert (counters.workers_lost, counters.refused) == (0, 40)
