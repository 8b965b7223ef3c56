"""What a client sees of a full queue and of a queue deadline, through gRPC."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from octavo.v1 import inference_pb2 as pb
from octavo.v1 import inference_pb2_grpc
from octavo_scheduler.config import read_config
from octavo_scheduler.errors import RETRY_AFTER
from octavo_scheduler.model import ServedModel
from octavo_scheduler.server import Scheduler

from tests.patience import PATIENCE


@pytest.fixture
async def stub(model: ServedModel, tmp_path: Path) -> AsyncIterator[Any]:
    """No worker is here, so that whatever is accepted waits."""
    flags = ["--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w", "--max-queued-requests", "1"]
    scheduler = Scheduler(read_config(["--model", "tiny", *flags]), model)
    await scheduler.start()
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        yield inference_pb2_grpc.InferenceServiceStub(channel)
    await scheduler.stop(grace=0)


def request(queue_seconds: float | None = None) -> pb.GenerateRequest:
    options = pb.GenerationOptions(scheduling=pb.SchedulingOptions(queue_seconds=queue_seconds))
    return pb.GenerateRequest(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=[1, 2])), options=options)


async def test_a_full_queue_is_resource_exhausted_and_says_when_to_try_again(stub: Any) -> None:
    calls = [asyncio.ensure_future(stub.Generate(request())) for _ in range(2)]
    done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
    error = done.pop().exception()
    assert isinstance(error, grpc.aio.AioRpcError)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(error.details()).startswith("1 requests are waiting already, which is the limit; try again in about ")
    metadata = dict(error.trailing_metadata() or ())
    assert int(metadata[RETRY_AFTER]) > 0
    waiting.pop().cancel()


async def test_in_a_burst_too_every_call_beyond_the_queue_is_refused_and_none_is_cancelled(stub: Any) -> None:
    """gRPC cancels calls at random when more than a thousand wait to be looked at, unless it is told not to."""

    async def ask() -> grpc.StatusCode:
        try:
            await stub.Generate(request(queue_seconds=60), timeout=PATIENCE)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    calls = [asyncio.create_task(ask()) for _ in range(2500)]
    ended = asyncio.as_completed(calls)
    assert {await next(ended) for _ in range(2499)} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    (waiting,) = (call for call in calls if not call.done())
    waiting.cancel()


async def test_a_request_that_has_not_started_by_its_queue_deadline_ends(stub: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Generate(request(queue_seconds=0.05), timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert caught.value.details() == "the request ran out of time", "by the server's word, not the client's"
