"""What programs are told of an error, beside the sentence for people: google.rpc's details, in every service."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from octavo.v1 import admin_pb2, admin_pb2_grpc
from octavo.v1 import inference_pb2 as pb
from octavo_client import errors as client_errors
from octavo_scheduler import errors
from octavo_scheduler.model import ServedModel
from octavo_scheduler.roles import RoleInterceptor, Tokens

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    async with paper_service(model, tmp_path, PaperWorker(page_size=4, pages=16)) as running:
        running.is_open.set()
        yield running


def told(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """The details by their kind, read by gRPC's own library, which insists on the same code and message."""
    status = rpc_status.from_call(error)
    found = {}
    for each in status.details:
        for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo):
            message: Any = kind()
            if each.Unpack(message):
                found[kind.DESCRIPTOR.name] = message
    return found


async def ending(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if hasattr(call, "read") else call)
    return caught.value


def generate(**options: Any) -> pb.GenerateRequest:
    prompt = pb.Prompt(token_ids=pb.TokenIds(ids=[1, 2, 3]))
    return pb.GenerateRequest(prompt=prompt, options=pb.GenerationOptions(**options))


WRONG = {
    "prompt": (pb.GenerateRequest(), {}),
    "prompt.token_ids": (
        pb.GenerateRequest(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=[900]))),
        {"given": "900", "most": "899"},
    ),
    "options.sampling.top_p": (
        generate(sampling=pb.SamplingOptions(top_p=1.5)),
        {"given": "1.5", "least": "0", "most": "1"},
    ),
    "options.sampling.n": (generate(sampling=pb.SamplingOptions(n=17)), {"given": "17", "most": "16"}),
    "options.stopping.max_tokens": (
        generate(stopping=pb.StoppingOptions(max_tokens=5000)),
        {"given": "5000", "most": "4093"},
    ),
    "options.stopping.stop[1]": (
        generate(stopping=pb.StoppingOptions(stop=["a", ""])),
        {"given": "0", "least": "1", "most": "256"},
    ),
    "options.scheduling.queue_seconds": (
        generate(scheduling=pb.SchedulingOptions(queue_seconds=-1)),
        {"given": "-1", "most": "3600"},
    ),
    "request_id": (
        pb.GenerateRequest(prompt=generate().prompt, request_id="x" * 129),
        {"given": "129", "most": "128"},
    ),
}


@pytest.mark.parametrize("field", WRONG)
async def test_a_field_that_is_wrong_is_named_with_its_path_and_the_numbers(service: PaperService, field: str) -> None:
    request, numbers = WRONG[field]
    error = await ending(service.stub.Generate(request))
    details = told(error)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    info, (violation,) = details["ErrorInfo"], details["BadRequest"].field_violations
    assert (info.reason, info.domain, dict(info.metadata)) == ("INVALID_REQUEST", "octavo.v1", numbers)
    assert (violation.field, violation.description) == (field, error.details())
    assert "RetryInfo" not in details
    message: Any = request
    for name in field.replace("[1]", "").split("."):
        assert name in message.DESCRIPTOR.fields_by_name, "it is a path of the schema"
        message = getattr(message, name)


async def test_the_path_is_that_of_the_message_that_was_sent(service: PaperService) -> None:
    robot = pb.ChatMessage(role="robot")
    calls = {
        "messages[1].role": service.stub.Chat(pb.ChatRequest(messages=[pb.ChatMessage(role="user"), robot])),
        "messages[0].role": service.stub.ChatStream(pb.ChatStreamRequest(messages=[robot])),
        "chat.messages[0].role": service.stub.Tokenize(pb.TokenizeRequest(chat=pb.Conversation(messages=[robot]))),
        "text": service.stub.Tokenize(pb.TokenizeRequest(text="x" * 1_000_000)),
        "token_ids": service.stub.Detokenize(pb.DetokenizeRequest(token_ids=[900])),
    }
    for field, call in calls.items():
        (violation,) = told(await ending(call))["BadRequest"].field_violations
        assert violation.field == field


async def test_every_service_tells_them(service: PaperService) -> None:
    async with grpc.aio.insecure_channel(service.scheduler.address) as channel:
        admin: Any = admin_pb2_grpc.AdminServiceStub(channel)
        raw: Any = channel.unary_unary("/octavo.v1.InferenceService/Generate")
        calls = {
            "MODEL_NOT_FOUND": service.stub.GetModel(pb.GetModelRequest(model="x")),
            "UNKNOWN_NAME": admin.DrainWorker(admin_pb2.DrainWorkerRequest(worker_id="x")),
            "INVALID_REQUEST": admin.WatchStatus(admin_pb2.WatchStatusRequest(interval_seconds=0)),
            "UNREADABLE": raw(b"\xff"),
            "TOO_LONG": service.stub.Generate(generate(stopping=pb.StoppingOptions(max_tokens=4000))),
        }
        for reason, call in calls.items():
            assert told(await ending(call))["ErrorInfo"].reason == reason


async def test_who_is_kept_out_is_told_why(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a" * 20)
    server = grpc.aio.server(interceptors=[RoleInterceptor(Tokens(infer=tmp_path / "token"))])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: Any = channel.unary_unary("/octavo.v1.InferenceService/Generate")
        error = await ending(method(b""))
        assert told(error)["ErrorInfo"].reason == "UNAUTHENTICATED"
    await server.stop(None)


async def test_a_full_queue_says_when_to_come_again(model: ServedModel, tmp_path: Path) -> None:
    error = errors.Overloaded("the queue is full", 2.5, reason="QUEUE_FULL")
    metadata = dict(error.metadata)
    assert metadata[errors.RETRY_AFTER] == metadata[errors.PUSHBACK] == "2500"
    read = client_errors.from_status("RESOURCE_EXHAUSTED", str(error), error.metadata)
    assert (read.reason, read.retry_after, read.field, dict(read.numbers)) == ("QUEUE_FULL", 2.5, "", {})


async def test_a_scheduler_that_stops_says_when_to_come_again(service: PaperService) -> None:
    service.scheduler.front.is_draining = True
    details = told(await ending(service.stub.Generate(generate())))
    assert details["ErrorInfo"].reason == "STOPPED"
    assert details["RetryInfo"].retry_delay.ToMilliseconds() == 1000


async def test_the_client_has_them_on_its_errors(service: PaperService) -> None:
    with pytest.raises(client_errors.InvalidRequest) as caught:
        await service.client.detokenize([900])
    error = caught.value
    assert (error.reason, error.field, dict(error.numbers)) == (
        *("INVALID_REQUEST", "token_ids"),
        {"given": "900", "most": "899"},
    )
    assert error.retry_after is None


def test_details_that_are_none_or_of_other_kinds_change_nothing() -> None:
    for details in (b"", b"\xff", errors.InvalidRequest("x").metadata[0][1][:9]):
        read = client_errors.from_status("INTERNAL", "x", [(client_errors.DETAILS, details)])
        assert (str(read), read.reason, read.field, read.retry_after) == ("x", "", "", None)


def test_the_longest_error_fits_into_a_header() -> None:
    error = errors.InvalidRequest(
        "\u4f60" * 5000, 1.0, field="options.scheduling.resume_from_others", numbers={"a": 1e300}
    )
    size = sum(len(key) + len(value) * 4 // 3 for key, value in error.metadata) + 3 * len(str(error).encode())
    assert size < 8 << 10, "which is what many peers take"


def test_the_reason_is_a_word_for_programs() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RequestError)]
    reasons = {kind("x").reason for kind in kinds}
    assert {"INVALID_REQUEST", "SLOW_READER", "NAME_TAKEN"} <= reasons
    assert len(reasons) == len(kinds)
