"""gRPC as others met it: large messages, absurd deadlines, clients that leave, over a whole scheduler."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from octavo.v1 import inference_pb2 as pb
from octavo_client import channel as client_channel
from octavo_scheduler import limits
from octavo_scheduler.endpoint import SERVER_OPTIONS
from octavo_scheduler.model import ServedModel

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker, answer
from tests.patience import PATIENCE, until

GENERATE = "/octavo.v1.InferenceService/Generate"
NUM_TOKENS = 200
STREAM = "/octavo.v1.InferenceService/GenerateStream"


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    async with paper_service(model, tmp_path, PaperWorker(page_size=4, pages=64, max_slots=4)) as running:
        yield running


async def goes_on(service: PaperService) -> bool:
    service.is_open.set()
    return await service.ask("good", [1, 2, 3]) == answer([1, 2, 3], 8)


def request(**more: Any) -> bytes:
    options = pb.GenerationOptions(stopping=pb.StoppingOptions(max_tokens=NUM_TOKENS, ignore_eos=True))
    prompt = pb.Prompt(token_ids=pb.TokenIds(ids=[1, 2, 3]))
    return pb.GenerateRequest(prompt=prompt, options=options, **more).SerializeToString()


def test_GR05_client_and_server_take_messages_of_the_same_size() -> None:
    server, client = dict(SERVER_OPTIONS), dict(client_channel.OPTIONS)
    for name in ("grpc.max_receive_message_length", "grpc.max_send_message_length"):
        assert server[name] == limits.GRPC_MESSAGE_BYTES
    assert client["grpc.max_receive_message_length"] == limits.GRPC_MESSAGE_BYTES


@pytest.mark.parametrize("size", [5 << 20, limits.GRPC_MESSAGE_BYTES - 1000, limits.GRPC_MESSAGE_BYTES + 1, 40 << 20])
async def test_GR05_a_large_prompt_is_refused_with_its_reason_and_the_next_call_is_served(
    service: PaperService, size: int
) -> None:
    sent = pb.GenerateRequest(prompt=pb.Prompt(text="x" * size)).SerializeToString()
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(service.scheduler.address, options=options) as channel:
        call: Any = channel.unary_unary(GENERATE)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(sent, timeout=PATIENCE)
    fits = size < limits.GRPC_MESSAGE_BYTES
    assert caught.value.code().name == ("INVALID_ARGUMENT" if fits else "RESOURCE_EXHAUSTED")
    assert await goes_on(service)


@pytest.mark.parametrize("timeout", [0x3C000001, 1e9, 1e-9, 0.0, -1.0])
async def test_GR10_an_absurd_deadline_ends_its_call_or_is_cut_to_the_longest(
    service: PaperService, timeout: float
) -> None:
    service.is_open.set()
    async with grpc.aio.insecure_channel(service.scheduler.address) as channel:
        method: Any = channel.unary_unary(GENERATE)
        call = method(request(), timeout=timeout)
        code = await call.code()
    assert code is (grpc.StatusCode.OK if timeout > 1 else grpc.StatusCode.DEADLINE_EXCEEDED)
    assert await goes_on(service)


READER = """
import asyncio, sys
from octavo_client import AsyncClient, SamplingParams

async def read():
    async with AsyncClient(sys.argv[1]) as client:
        async for event in client.stream([1, 2, 3], SamplingParams(max_tokens=200, ignore_eos=True)):
            print("event", flush=True)

asyncio.run(read())
"""


async def test_GR09_when_client_processes_are_killed_no_task_of_their_streams_is_left(service: PaperService) -> None:
    """The worker keeps its second result, so that no stream could end by itself."""
    core, front, gate = service.scheduler.loop.core, service.scheduler.front, service.is_open
    before = len(asyncio.all_tasks())
    command = [sys.executable, "-c", READER, service.scheduler.address]
    readers = [await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE) for _ in range(2)]
    await until(lambda: len(core.requests) == 2)
    gate.set()
    for reader in readers:
        assert reader.stdout is not None
        assert await reader.stdout.readline() == b"event\n"
    gate.clear()
    assert len(asyncio.all_tasks()) > before
    for reader in readers:
        reader.kill()
        await reader.wait()
    await until(lambda: not core.requests)
    await until(lambda: len(asyncio.all_tasks()) <= before + 2)
    assert not front.num_readers
    assert not front.live
    assert core.workers["w0"].device.num_held == 0
    assert await goes_on(service)


async def test_GR01_after_a_hundred_streams_that_were_cancelled_no_task_is_left_and_the_next_is_served(
    service: PaperService,
) -> None:
    service.is_open.set()
    async with grpc.aio.insecure_channel(service.scheduler.address) as channel:
        stream: Any = channel.unary_stream(STREAM)
        before = len(asyncio.all_tasks())
        for _ in range(100):
            call = stream(request())
            await call.read()
            call.cancel()
        await until(lambda: not service.scheduler.loop.core.requests)
        await until(lambda: len(asyncio.all_tasks()) <= before + 2)
    assert await goes_on(service)
