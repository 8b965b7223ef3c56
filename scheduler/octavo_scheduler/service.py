"""octavo.v1.InferenceService over the front. Thin: messages in, messages out, errors to status codes."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from octavo.v1 import inference_pb2 as pb
from octavo.v1 import inference_pb2_grpc

from octavo_scheduler import description
from octavo_scheduler.answer import Begin, BranchEnd, End, Event, Piece, PromptPiece
from octavo_scheduler.core.request import FinishReason, RequestSpec
from octavo_scheduler.errors import RequestError, SlowReader
from octavo_scheduler.front import Front
from octavo_scheduler.logprobs import Pair, positions
from octavo_scheduler.model import ServedModel
from octavo_scheduler.outlet import Context, Outlet
from octavo_scheduler.prompts import check_context, encode_messages, encode_text, parse_messages, parse_prompt
from octavo_scheduler.questions import Posts, ask
from octavo_scheduler.requests import Arrival, Parsed, check_model, parse

Response = TypeVar("Response", pb.GenerateResponse, pb.ChatResponse)
Message = TypeVar("Message", pb.GenerateStreamResponse, pb.ChatStreamResponse)

SHORT_BYTES = 4 << 10
"""Requests that are tokenised at once, which takes a few milliseconds. Longer ones would hold up streams, and so may chats:
their templates are programs.
"""
Worked = TypeVar("Worked")
Plain = pb.GenerateRequest | pb.GenerateStreamRequest

FINISH_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.CANCELLED: pb.FINISH_REASON_ABORTED,
}


class InferenceService(inference_pb2_grpc.InferenceServiceServicer):
    """One for each scheduler."""

    def __init__(self, front: Front, loop: Posts) -> None:
        self._front = front
        self._loop = loop

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        try:
            parsed = await self._parse_prompt(request, context)
            return await self._whole(parsed, pb.GenerateResponse(request_id=parsed.label))
        except RequestError as error:
            await context.abort(error.status, str(error), error.metadata)

    async def GenerateStream(self, request: pb.GenerateStreamRequest, context: Context) -> None:
        await self._stream(self._parse_prompt(request, context), pb.GenerateStreamResponse, context)

    async def Chat(self, request: pb.ChatRequest, context: Context) -> pb.ChatResponse:
        try:
            parsed = await self._parse_chat(request, context)
            return await self._whole(parsed, pb.ChatResponse(request_id=parsed.label))
        except RequestError as error:
            await context.abort(error.status, str(error), error.metadata)

    async def ChatStream(self, request: pb.ChatStreamRequest, context: Context) -> None:
        await self._stream(self._parse_chat(request, context), pb.ChatStreamResponse, context)

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        def tokenize(model: ServedModel) -> list[int]:
            if request.WhichOneof("content") == "chat":
                return encode_messages(model, request.chat.messages, "chat.messages")
            return encode_text(model, request.text, "text")

        ids = await self._worked(request, tokenize, context)
        return pb.TokenizeResponse(num_tokens=len(ids), token_ids=() if request.only_count else ids)

    async def Detokenize(self, request: pb.DetokenizeRequest, context: Context) -> pb.DetokenizeResponse:
        def detokenize(model: ServedModel) -> str:
            check_context(model, request.token_ids)
            skips = request.skip_special_tokens if request.HasField("skip_special_tokens") else True
            return model.vocabulary.decode(request.token_ids, skip_special_tokens=skips)

        return pb.DetokenizeResponse(text=await self._worked(request, detokenize, context))

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=[description.model(self._front.model)])

    async def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.GetModelResponse:
        model = self._front.model
        try:
            check_model(model, request.model)
            return await ask(self._loop, lambda core, now, outputs: description.described(model, core))
        except RequestError as error:
            await context.abort(error.status, str(error), error.metadata)

    async def _worked(
        self,
        request: pb.TokenizeRequest | pb.DetokenizeRequest,
        work: Callable[[ServedModel], Worked],
        context: Context,
    ) -> Worked:
        """What the vocabulary makes of a message, in a thread where that may take long. Ends the call of a wrong one."""
        model = self._front.model
        try:
            check_model(model, request.model)
            is_chat = isinstance(request, pb.TokenizeRequest) and request.HasField("chat")
            is_short = request.ByteSize() <= SHORT_BYTES and not is_chat
            return work(model) if is_short else await self._front.aside(lambda: work(model))
        except RequestError as error:
            await context.abort(error.status, str(error), error.metadata)

    async def _parse_prompt(self, request: Plain, context: Context) -> Parsed:
        return await self._parse(lambda model: parse_prompt(model, request.prompt), request, context)

    async def _parse_chat(self, request: pb.ChatRequest | pb.ChatStreamRequest, context: Context) -> Parsed:
        return await self._parse(lambda model: parse_messages(model, request.messages), request, context)

    async def _parse(
        self,
        prompt: Callable[[ServedModel], list[int]],
        request: Plain | pb.ChatRequest | pb.ChatStreamRequest,
        context: Context,
    ) -> Parsed:
        model = self._front.model

        def check(arrival: Arrival) -> Parsed:
            check_model(model, request.model)
            return parse(model, prompt(model), request.options, request.request_id, arrival)

        is_short = isinstance(request, Plain) and request.ByteSize() <= SHORT_BYTES
        return await self._front.parsed(check, context.time_remaining(), is_short=is_short)

    async def _stream(self, parsing: Awaitable[Parsed], message: type[Message], context: Context) -> None:
        outlet = Outlet(context)
        try:
            parsed = await parsing
            async with aclosing(self._front.stream(parsed, outlet.cut)) as events:
                async for event in events:
                    await outlet.write(message(request_id=parsed.label, **_event(event, parsed.spec)))
        except RequestError as error:
            self._front.tally.cut_off += isinstance(error, SlowReader)
            await outlet.end(error)

    async def _whole(self, parsed: Parsed, response: Response) -> Response:
        """The same events as a stream's, gathered."""
        completions = [response.completions.add(branch=branch) for branch in range(parsed.spec.n)]
        async with aclosing(self._front.stream(parsed)) as events:
            async for event in events:
                match event:
                    case PromptPiece():
                        response.prompt_logprobs.extend(_positions(event.logprobs, parsed.spec.prompt_logprobs))
                    case Piece():
                        completion = completions[event.branch]
                        completion.text += event.text
                        completion.token_ids.extend(event.tokens)
                        completion.logprobs.extend(_positions(event.logprobs, parsed.spec.logprobs))
                    case End():
                        for completion, branch in zip(completions, event.branches, strict=True):
                            completion.finish.CopyFrom(_finish(branch))
                        response.usage.CopyFrom(_usage(event))
                        response.timings.CopyFrom(_timings(event))
        return response


def _event(event: Event, spec: RequestSpec) -> dict[str, Any]:
    match event:
        case Begin():
            return {"start": _start(event)}
        case Piece():
            delta = pb.Delta(
                branch=event.branch,
                text=event.text,
                token_ids=event.tokens,
                first_index=event.first_index,
                logprobs=_positions(event.logprobs, spec.logprobs),
            )
            return {"delta": delta}
        case PromptPiece():
            positions = _positions(event.logprobs, spec.prompt_logprobs)
            return {"prompt": pb.PromptPiece(first_index=event.first_index, logprobs=positions)}
        case End():
            branches = [pb.BranchEnd(branch=i, finish=_finish(end)) for i, end in enumerate(event.branches)]
            return {"end": pb.StreamEnd(branches=branches, usage=_usage(event), timings=_timings(event))}


def _positions(logprobs: bytes, num_best: int | None) -> list[pb.PositionLogprobs]:
    return [
        pb.PositionLogprobs(chosen=None if own is None else _pair(own), top=map(_pair, best))
        for own, best in positions(logprobs, num_best)
    ]


def _pair(pair: Pair) -> pb.TokenLogprob:
    return pb.TokenLogprob(token_id=pair[0], logprob=pair[1])


def _start(begin: Begin) -> pb.StreamStart:
    return pb.StreamStart(
        prompt_tokens=begin.prompt_tokens,
        cached_tokens=begin.cached_tokens,
        queue_seconds=begin.queued,
        seed=begin.seed,
    )


def _finish(end: BranchEnd) -> pb.Finish:
    finish = pb.Finish(reason=FINISH_REASONS[end.reason])
    if end.stop is not None:
        finish.stop = end.stop
    elif end.stop_token is not None:
        finish.token_id = end.stop_token
    return finish


def _usage(end: End) -> pb.Usage:
    return pb.Usage(
        prompt_tokens=end.prompt_tokens, completion_tokens=end.completion_tokens, cached_tokens=end.cached_tokens
    )


def _timings(end: End) -> pb.Timings:
    return pb.Timings(
        queue_seconds=end.queued,
        first_token_seconds=end.first_token_seconds,
        total_seconds=end.total_seconds,
        preemptions=end.preemptions,
    )
