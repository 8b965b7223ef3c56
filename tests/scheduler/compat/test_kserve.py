"""inference.GRPCInferenceService: prompts and answers as tensors of one text."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from octavo.foreign import kserve_pb2 as pb
from octavo.foreign import kserve_pb2_grpc
from octavo_scheduler.compat.kserve import FINAL, GROUPS, LENGTH, options_of
from octavo_scheduler.errors import InvalidRequest
from octavo_scheduler.model import ServedModel

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker, answer
from tests.patience import until

Status = grpc.StatusCode
PROMPT = "the and you"


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    async with paper_service(model, tmp_path, PaperWorker(page_size=4, pages=64)) as service:
        service.is_open.set()
        yield service


def stub(service: PaperService) -> Any:
    return kserve_pb2_grpc.GRPCInferenceServiceStub(service.channel)


def parameter(value: object) -> pb.InferParameter:
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    chosen: dict[str, Any] = {kinds[type(value)]: value}
    return pb.InferParameter(**chosen)


def parameters(**given: object) -> dict[str, pb.InferParameter]:
    return {name: parameter(value) for name, value in given.items()}


def request(model: ServedModel, text: str = PROMPT, id: str = "7", **given: object) -> pb.ModelInferRequest:
    data = text.encode()
    options = {"seed": 0, "max_tokens": 6, "ignore_eos": True, "skip_special_tokens": False, **given}
    return pb.ModelInferRequest(
        model_name=model.name,
        id=id,
        parameters=parameters(**options),
        inputs=[pb.ModelInferRequest.InferInputTensor(name="text_input", datatype="BYTES", shape=[1])],
        raw_input_contents=[LENGTH.pack(len(data)) + data],
    )


def text_of(response: pb.ModelInferResponse) -> str:
    (output,), (raw,) = response.outputs, response.raw_output_contents
    assert (output.name, output.datatype, list(output.shape)) == ("text_output", "BYTES", [1])
    assert LENGTH.unpack(raw[:4]) == (len(raw) - 4,)
    return raw[4:].decode()


def expected(model: ServedModel, text: str = PROMPT) -> str:
    vocabulary = model.vocabulary
    return vocabulary.decode(answer(vocabulary.encode(text), 6), skip_special_tokens=False)


async def stream(service: PaperService, *requests: pb.ModelInferRequest) -> list[pb.ModelStreamInferResponse]:
    return [response async for response in stub(service).ModelStreamInfer(iter(requests))]


async def test_a_whole_answer_is_one_tensor_and_says_how_it_ended(service: PaperService, model: ServedModel) -> None:
    response = await stub(service).ModelInfer(request(model))
    assert (text_of(response), response.id, response.model_name) == (expected(model), "7", model.name)
    given = response.parameters
    assert given[FINAL].bool_param
    assert (given["finish_reason"].string_param, given["completion_tokens"].int64_param) == ("length", 6)


@pytest.mark.parametrize("ends_empty", [True, False])
async def test_a_stream_is_pieces_of_text_and_a_last_response_that_says_so(
    service: PaperService, model: ServedModel, ends_empty: bool
) -> None:
    asked = request(model, triton_enable_empty_final_response=ends_empty)
    *pieces, last = [response.infer_response for response in await stream(service, asked)]
    assert "".join(map(text_of, pieces)) == expected(model)
    assert not any(FINAL in piece.parameters for piece in pieces)
    assert last.parameters[FINAL].bool_param
    assert last.parameters["finish_reason"].string_param == "length"
    assert [raw[4:] for raw in last.raw_output_contents] == ([] if ends_empty else [b""])


async def test_requests_of_one_stream_are_answered_in_turn_and_an_error_ends_its_own_alone(
    service: PaperService, model: ServedModel
) -> None:
    asked = [request(model, id="a"), request(model, id="b", temperature=-1.0), request(model, "you are", id="c")]
    responses = await stream(service, *asked)
    ids = [response.infer_response.id for response in responses]
    assert ids == sorted(ids)
    (failed,) = [response for response in responses if response.error_message]
    assert failed.infer_response.id == "b"
    assert failed.error_message.startswith("temperature is -1.0")
    texts: dict[str, str] = dict.fromkeys(ids, "")
    for response in responses:
        if response.infer_response.outputs:
            texts[response.infer_response.id] += text_of(response.infer_response)
    assert texts == {"a": expected(model), "b": "", "c": expected(model, "you are")}


async def test_a_client_that_leaves_its_stream_frees_the_pages(service: PaperService, model: ServedModel) -> None:
    call = stub(service).ModelStreamInfer(iter([request(model, max_tokens=200)]))
    await call.read()
    call.cancel()
    core = service.scheduler.loop.core
    await until(lambda: not core.requests and not core.workers["w0"].device.num_held)
    assert core.counters.cancelled == 1


async def test_bytes_that_are_no_message_end_a_stream_with_a_sentence(service: PaperService) -> None:
    call: Any = service.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(iter([b"\xff\xff\xff"])).read()
    assert caught.value.code() is Status.INVALID_ARGUMENT


async def test_server_and_model_are_told_and_whether_they_are_ready(service: PaperService, model: ServedModel) -> None:
    kserve = stub(service)
    assert (await kserve.ServerLive(pb.ServerLiveRequest())).live
    metadata = await kserve.ModelMetadata(pb.ModelMetadataRequest(name=model.name))
    assert [(tensor.name, tensor.datatype) for tensor in (*metadata.inputs, *metadata.outputs)] == [
        ("text_input", "BYTES"),
        ("text_output", "BYTES"),
    ]
    assert (await kserve.ServerMetadata(pb.ServerMetadataRequest())).name == "octavo"
    for is_ready in (True, False):
        assert (await kserve.ServerReady(pb.ServerReadyRequest())).ready is is_ready
        assert (await kserve.ModelReady(pb.ModelReadyRequest(name=model.name, version="1"))).ready is is_ready
        assert not (await kserve.ModelReady(pb.ModelReadyRequest(name="another"))).ready
        await service.client.drain_worker("w0")


async def test_another_model_or_version_is_not_found(service: PaperService, model: ServedModel) -> None:
    for asked in (pb.ModelMetadataRequest(name="another"), pb.ModelMetadataRequest(name=model.name, version="2")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(service).ModelMetadata(asked)
        assert caught.value.code() is Status.NOT_FOUND


def wrong_requests(model: ServedModel) -> Iterator[tuple[str, pb.ModelInferRequest]]:
    tensor = pb.ModelInferRequest.InferInputTensor
    for sentence, inputs in (
        ("one input", []),
        ("one input", [tensor(name="images", datatype="BYTES", shape=[1])]),
        ("with one element", [tensor(name="text_input", datatype="FP32", shape=[1])]),
        ("with one element", [tensor(name="text_input", datatype="BYTES", shape=[2])]),
    ):
        wrong = request(model)
        del wrong.inputs[:]
        wrong.inputs.extend(inputs)
        yield sentence, wrong
    for sentence, contents in (
        ("not one element", [b"ab"]),
        ("not one element", [LENGTH.pack(9) + b"short"]),
        ("2 elements", [LENGTH.pack(1) + b"a"] * 2),
        ("0 elements", []),
        ("not UTF-8", [LENGTH.pack(1) + b"\xff"]),
    ):
        wrong = request(model)
        del wrong.raw_input_contents[:]
        wrong.raw_input_contents.extend(contents)
        yield sentence, wrong
    wrong = request(model)
    wrong.outputs.add(name="logits")
    yield "text_output", wrong
    yield "no parameter 'tools'", request(model, tools="all")
    yield "max_tokens cannot be 'many'", request(model, max_tokens="many")


async def test_what_is_no_text_or_no_option_is_refused_with_a_sentence(
    service: PaperService, model: ServedModel
) -> None:
    for sentence, wrong in wrong_requests(model):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(service).ModelInfer(wrong)
        assert caught.value.code() is Status.INVALID_ARGUMENT
        assert sentence in (caught.value.details() or "")


async def test_a_text_may_lie_in_the_tensor_itself(service: PaperService, model: ServedModel) -> None:
    asked = request(model)
    del asked.raw_input_contents[:]
    asked.inputs[0].contents.bytes_contents.append(PROMPT.encode())
    assert text_of(await stub(service).ModelInfer(asked)) == expected(model)


def test_every_parameter_sets_an_option_of_its_name() -> None:
    texts = {"stop", "tenant", "cache_salt", "json_schema", "regex", "grammar"}
    flags = {"ignore_eos", "include_stop", "skip_special_tokens"}
    for group, names in GROUPS.items():
        for name in names:
            value = "text" if name in texts else name in flags or 1
            options = options_of(parameters(**{name: value}))
            assert [field.name for field, _ in getattr(options, group).ListFields()] == [name]


def test_an_empty_parameter_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        options_of({"temperature": pb.InferParameter()})
