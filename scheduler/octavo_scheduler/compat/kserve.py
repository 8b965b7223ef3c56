"""inference.GRPCInferenceService: KServe's protocol for tensors, with Triton's stream. A text in, a text out."""

import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from importlib.metadata import version

from octavo.foreign import kserve_pb2 as pb
from octavo.foreign import kserve_pb2_grpc
from octavo.v1 import inference_pb2

from octavo_scheduler.answer import End, Piece
from octavo_scheduler.compat.finish import FINISH_REASONS
from octavo_scheduler.errors import InvalidRequest, ModelNotFound, RequestError, SlowReader
from octavo_scheduler.front import Front
from octavo_scheduler.limits import MAX_ECHO
from octavo_scheduler.outlet import Context, Outlet
from octavo_scheduler.prompts import parse_prompt
from octavo_scheduler.questions import Posts, ask, is_ready
from octavo_scheduler.requests import Arrival, Parsed, check_model, parse
from octavo_scheduler.service import SHORT_BYTES

INPUT, OUTPUT, BYTES, MODEL_VERSION = "text_input", "text_output", "BYTES", "1"
FINAL = "triton_final_response"
ENDS_EMPTY = "triton_enable_empty_final_response"
LENGTH = struct.Struct("<I")
GROUPS = {
    "sampling": (
        *("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        "seed",
    ),
    "stopping": ("max_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos", "include_stop"),
    "output": ("skip_special_tokens", "stream_interval"),
    "scheduling": ("priority", "tenant", "cache_salt", "queue_seconds"),
    "constraint": ("json_schema", "regex", "grammar"),
}
"""Options of octavo.v1 that a parameter of the same name sets."""
PARAMETERS = {name: group for group, names in GROUPS.items() for name in names}
REPEATED = {"stop", "stop_token_ids"}


class KserveService(kserve_pb2_grpc.GRPCInferenceServiceServicer):
    """One for each scheduler."""

    def __init__(self, front: Front, loop: Posts) -> None:
        self._front = front
        self._loop = loop

    async def ServerLive(self, request: pb.ServerLiveRequest, context: Context) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: pb.ServerReadyRequest, context: Context) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=await ask(self._loop, is_ready))

    async def ModelReady(self, request: pb.ModelReadyRequest, context: Context) -> pb.ModelReadyResponse:
        is_served = request.name == self._front.model.name and request.version in ("", MODEL_VERSION)
        return pb.ModelReadyResponse(ready=is_served and await ask(self._loop, is_ready))

    async def ServerMetadata(self, request: pb.ServerMetadataRequest, context: Context) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name="octavo", version=version("octavo"))

    async def ModelMetadata(self, request: pb.ModelMetadataRequest, context: Context) -> pb.ModelMetadataResponse:
        try:
            self._check_model(request.name, request.version)
        except RequestError as error:
            await context.abort(error.status, str(error), error.metadata)
        tensor = pb.ModelMetadataResponse.TensorMetadata
        return pb.ModelMetadataResponse(
            name=self._front.model.name,
            versions=[MODEL_VERSION],
            platform="octavo",
            inputs=[tensor(name=INPUT, datatype=BYTES, shape=[1])],
            outputs=[tensor(name=OUTPUT, datatype=BYTES, shape=[1])],
        )

    async def ModelInfer(self, request: pb.ModelInferRequest, context: Context) -> pb.ModelInferResponse:
        texts: list[str] = []
        response = self._response(request)
        try:
            async with aclosing(self._front.stream(await self._parse(request, context))) as events:
                async for event in events:
                    match event:
                        case Piece():
                            texts.append(event.text)
                        case End():
                            _close(response, event)
        except RequestError as error:
            await context.abort(error.status, str(error), error.metadata)
        return _with_text(response, "".join(texts))

    async def ModelStreamInfer(self, request_iterator: AsyncIterator[pb.ModelInferRequest], context: Context) -> None:
        outlet = Outlet(context)
        try:
            async for request in request_iterator:
                await self._answer(request, context, outlet)
        except RequestError as error:
            await outlet.end(error)

    async def _answer(self, request: pb.ModelInferRequest, context: Context, outlet: Outlet) -> None:
        """One request of a stream. Raises SlowReader, which ends the stream; other errors end the request alone."""
        try:
            parsed = await self._parse(request, context)
            async with aclosing(self._front.stream(parsed, outlet.cut)) as events:
                async for event in events:
                    response = self._response(request)
                    match event:
                        case Piece(text=""):
                            continue
                        case Piece():
                            _with_text(response, event.text)
                        case End():
                            _close(response, event)
                            if not request.parameters[ENDS_EMPTY].bool_param:
                                _with_text(response, "")
                        case _:
                            continue
                    await outlet.write(pb.ModelStreamInferResponse(infer_response=response))
        except SlowReader:
            raise
        except RequestError as error:
            failed = self._response(request)
            await outlet.write(pb.ModelStreamInferResponse(error_message=str(error), infer_response=failed))

    async def _parse(self, request: pb.ModelInferRequest, context: Context) -> Parsed:
        self._check_model(request.model_name, request.model_version)

        def check(arrival: Arrival) -> Parsed:
            ids = parse_prompt(self._front.model, inference_pb2.Prompt(text=text_of(request)))
            parsed = parse(self._front.model, ids, options_of(request.parameters), request.id, arrival)
            return replace(parsed, name="")  # ids of this protocol are counted by each client for itself

        is_short = request.ByteSize() <= SHORT_BYTES
        return await self._front.parsed(check, context.time_remaining(), is_short=is_short)

    def _check_model(self, name: str, asked_version: str) -> None:
        check_model(self._front.model, name)
        if asked_version not in ("", MODEL_VERSION):
            raise ModelNotFound(f"there is version {MODEL_VERSION} alone, not {asked_version[:MAX_ECHO]!r}")

    def _response(self, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
        return pb.ModelInferResponse(model_name=self._front.model.name, model_version=MODEL_VERSION, id=request.id)


def text_of(request: pb.ModelInferRequest) -> str:
    """The prompt. Raises InvalidRequest for anything but one text."""
    if [tensor.name for tensor in request.inputs] != [INPUT]:
        raise InvalidRequest(f"a request has one input, the tensor {INPUT}; options are parameters")
    (tensor,) = request.inputs
    if tensor.datatype != BYTES or set(tensor.shape) - {1}:
        raise InvalidRequest(f"{INPUT} is a tensor of type {BYTES} with one element")
    if any(output.name != OUTPUT for output in request.outputs):
        raise InvalidRequest(f"the one output is {OUTPUT}")
    elements = [_element(raw) for raw in request.raw_input_contents] or list(tensor.contents.bytes_contents)
    if len(elements) != 1:
        raise InvalidRequest(f"{INPUT} has {len(elements)} elements, not one")
    try:
        return elements[0].decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{INPUT} is not UTF-8") from None


def _element(raw: bytes) -> bytes:
    if len(raw) < LENGTH.size or LENGTH.unpack_from(raw)[0] != len(raw) - LENGTH.size:
        raise InvalidRequest(f"the content of {INPUT} is not one element: its length in four bytes, and its bytes")
    return raw[LENGTH.size :]


def options_of(parameters: Mapping[str, pb.InferParameter]) -> inference_pb2.GenerationOptions:
    """How to generate. Raises InvalidRequest for a parameter that is no option, and for one of another type."""
    options = inference_pb2.GenerationOptions()
    for name, parameter in sorted(parameters.items()):
        if name == ENDS_EMPTY:
            continue
        if name not in PARAMETERS:
            raise InvalidRequest(
                f"there is no parameter {name[:MAX_ECHO]!r}; known are {', '.join(sorted(PARAMETERS))}"
            )
        kind = parameter.WhichOneof("parameter_choice")
        group, value = getattr(options, PARAMETERS[name]), getattr(parameter, kind) if kind else None
        try:
            if name in REPEATED:
                getattr(group, name).append(value)
            else:
                setattr(group, name, value)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"the parameter {name} cannot be {value!r}", field=f"parameters.{name}") from error
    return options


def _with_text(response: pb.ModelInferResponse, text: str) -> pb.ModelInferResponse:
    response.outputs.add(name=OUTPUT, datatype=BYTES, shape=[1])
    data = text.encode()
    response.raw_output_contents.append(LENGTH.pack(len(data)) + data)
    return response


def _close(response: pb.ModelInferResponse, end: End) -> None:
    """Makes it the last one."""
    parameters = response.parameters
    parameters[FINAL].bool_param = True
    parameters["finish_reason"].string_param = FINISH_REASONS[end.branches[0].reason]
    parameters["prompt_tokens"].int64_param = end.prompt_tokens
    parameters["completion_tokens"].int64_param = end.completion_tokens
