"""What gRPC says when a request is no message, and when a servicer fails as nobody foresaw."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from octavo.v1 import inference_pb2 as pb
from octavo.v1 import inference_pb2_grpc
from octavo_scheduler.errors import MOST_BYTES, InvalidRequest, Overloaded
from octavo_scheduler.shield import OUR_FAULT, UNREADABLE, ShieldInterceptor

from tests.fuzz.leaks import leaks
from tests.patience import PATIENCE

SECRET = "/srv/models/secret is not a number"


class Broken(inference_pb2_grpc.InferenceServiceServicer):
    """Fails at once, or after the first message of a stream; refuses one request as it should; another's client is gone."""

    async def Generate(self, request: Any, context: Any) -> pb.GenerateResponse:
        if request.request_id == "refuse":
            await context.abort(grpc.StatusCode.NOT_FOUND, "not here", (("retry-after-ms", "5"),))
        if request.request_id == "gone":
            raise grpc.aio.InternalError("what gRPC raises when it cannot send")
        raise ValueError(SECRET)

    async def GenerateStream(self, request: Any, context: Any) -> AsyncIterator[pb.GenerateStreamResponse]:
        yield pb.GenerateStreamResponse(request_id="first")
        raise KeyError(SECRET)


class WrittenHealth(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Writes its stream to the context, as gRPC's own does. Fails when a client of "fragile" leaves."""

    async def Watch(self, request: Any, context: Any) -> None:
        await context.write(health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING))
        if request.service == "fragile":
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError(SECRET)


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server(interceptors=[ShieldInterceptor()])
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(Broken(), server)
    health_pb2_grpc.add_HealthServicer_to_server(WrittenHealth(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    await server.stop(None)


async def ending(call: Any) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


async def test_what_nobody_foresaw_is_logged_and_not_told(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
    with caplog.at_level(logging.ERROR):
        assert await ending(stub.Generate(pb.GenerateRequest())) == (grpc.StatusCode.INTERNAL, OUR_FAULT)
        stream = stub.GenerateStream(pb.GenerateStreamRequest())
        assert (await stream.read()).request_id == "first"
        assert await ending(stream.read()) == (grpc.StatusCode.INTERNAL, OUR_FAULT)
    assert caplog.text.count(SECRET) == 2


async def test_what_fails_while_a_stream_is_left_is_logged_too(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="fragile"))
        await call.read()
        call.cancel()
        async with asyncio.timeout(PATIENCE):
            while SECRET not in caplog.text:
                await asyncio.sleep(0.01)


async def test_a_client_that_has_gone_is_nothing_to_complain_about(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Generate(pb.GenerateRequest(request_id="gone"), timeout=0.2)
    assert caplog.text == ""


async def test_a_refusal_passes_with_its_metadata(channel: grpc.aio.Channel) -> None:
    stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Generate(pb.GenerateRequest(request_id="refuse"))
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.NOT_FOUND, "not here")
    assert dict(caught.value.trailing_metadata())["retry-after-ms"] == "5"


HALF_A_PAIR = "\ud800".encode(errors="surrogatepass")
NO_MESSAGES = [b"\xff", b"\x0a\xff", b"\x0a\x02\xff\xfe", b"\x08", b"\x0a\x03" + HALF_A_PAIR]


@pytest.mark.parametrize("data", NO_MESSAGES)
async def test_TT01_TT02_bytes_that_are_no_message_or_no_unicode_are_an_invalid_request(
    channel: grpc.aio.Channel, data: bytes
) -> None:
    whole: Any = channel.unary_unary("/octavo.v1.InferenceService/Generate")
    stream: Any = channel.unary_stream("/octavo.v1.InferenceService/GenerateStream")
    for call in (whole(data), stream(data).read()):
        assert await ending(call) == (grpc.StatusCode.INVALID_ARGUMENT, UNREADABLE)


async def test_streams_that_are_written_to_the_context_pass(channel: grpc.aio.Channel) -> None:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answers = [answer.status async for answer in stub.Watch(health_pb2.HealthCheckRequest())]
    assert answers == [health_pb2.HealthCheckResponse.SERVING]


def test_GR08_a_sentence_is_short_and_can_be_printed_whatever_a_client_called_itself() -> None:
    for hostile in (
        "\x1b[2J\r\n\0",
        "\ud800",
        "\u202egnp.exe",
        "x" * 20_000,
        "é" * 20_000,
        b"\xff\xfe".decode("latin-1"),
    ):
        for sentence in (str(InvalidRequest(f"no {hostile} is here")), str(Overloaded(f"{hostile} is full", 1.0))):
            assert sentence.isprintable()
            assert len(sentence.encode()) <= MOST_BYTES
    assert str(InvalidRequest("no model '模型' is served here")) == "no model '模型' is served here"


def test_leaks_are_found_where_there_are_some() -> None:
    for sentence in (
        "[Errno 2] No such file: /home/me/model",
        "ValueError: bad",
        'File "server.py", line 3',
        "<class 'str'> has no len",
        "an object at 0x7f33de345678",
        "octavo_scheduler.front failed",
        "x" * 1025,
        "two\nlines",
    ):
        assert leaks(sentence), sentence
    assert not leaks("top_p is 2; it must lie in (0, 1]")
    assert not leaks("no model '/tmp' is served here", sent="/tmp"), "a client may hear its own words"
