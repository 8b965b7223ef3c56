"""The client for asyncio. Everything else in this package that talks to a server goes through it."""

import re
from collections.abc import AsyncGenerator, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from octavo.v1 import admin_pb2, admin_pb2_grpc, inference_pb2_grpc
from octavo.v1 import inference_pb2 as pb

from octavo_client import prompts, results
from octavo_client.addresses import DEFAULT_ADDRESS
from octavo_client.channel import call_metadata, open_channel
from octavo_client.errors import RequestError, from_status
from octavo_client.gather import gathered
from octavo_client.params import SamplingParams
from octavo_client.resume import resumed

# How gRPC's own words begin when it cannot connect; a server that refuses has words of its own.
NOBODY_THERE = re.compile("(?i)connections to all backends failing|failed to connect to all addresses")


class AsyncClient:
    """Talks to one scheduler. Use it as an async context manager, within one event loop.

    Cancelling the task that awaits a call, or leaving a stream early, cancels the request at the server. `timeout` is in
    seconds and covers the whole call; None is no limit. Calls raise the errors of `octavo_client.errors`.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        ca_file: str | Path | None = None,
        token_file: str | Path | None = None,
        cert_file: str | Path | None = None,
        key_file: str | Path | None = None,
        model: str = "",
        resume: bool = False,
    ) -> None:
        """`address` is "HOST:PORT" or "unix:PATH"; `model` a name of list_models(), empty for the only one.

        `cert_file` and `key_file` are this client's own, for a server that asks for them.
        With `resume`, answers go on after a lost connection or a restart of the scheduler, which callers do not notice;
        each call may say otherwise.
        """
        self.address = address
        self.model = model
        self.resume = resume
        self._metadata = call_metadata(token_file)
        self._channel = open_channel(address, ca_file, cert_file, key_file)
        self._inference = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._admin = admin_pb2_grpc.AdminServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels the calls that still run and closes the connection."""
        await self._channel.close()

    async def generate(
        self,
        prompt: prompts.Prompt,
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
        request_id: str = "",
        resume: bool | None = None,
    ) -> results.RequestOutput:
        """Continues a prompt and returns the whole answer. Without `params` the server's defaults hold."""
        if self._resumes(resume):
            events = self.stream(prompt, params, timeout=timeout, request_id=request_id, resume=True)
            return await gathered(events, prompt)
        request = pb.GenerateRequest(
            model=self.model, prompt=prompts.as_proto(prompt), options=_options(params), request_id=request_id
        )
        return results.request_output(await self._call(self._inference.Generate, request, timeout), prompt)

    def stream(
        self,
        prompt: prompts.Prompt,
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
        request_id: str = "",
        resume: bool | None = None,
    ) -> AsyncGenerator[results.Event]:
        """Continues a prompt and yields one Start, Deltas and one End. To leave early for certain, `aclose()` it."""
        request = pb.GenerateStreamRequest(
            model=self.model, prompt=prompts.as_proto(prompt), options=_options(params), request_id=request_id
        )
        return self._stream(self._inference.GenerateStream, request, timeout, resume)

    async def chat(
        self,
        messages: Iterable[prompts.Message],
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
        request_id: str = "",
        resume: bool | None = None,
    ) -> results.RequestOutput:
        """Answers a conversation, through the model's chat template, and returns the whole answer."""
        if self._resumes(resume):
            events = self.chat_stream(messages, params, timeout=timeout, request_id=request_id, resume=True)
            return await gathered(events, None)
        request = pb.ChatRequest(
            model=self.model,
            messages=prompts.messages_as_proto(messages),
            options=_options(params),
            request_id=request_id,
        )
        return results.request_output(await self._call(self._inference.Chat, request, timeout), None)

    def chat_stream(
        self,
        messages: Iterable[prompts.Message],
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
        request_id: str = "",
        resume: bool | None = None,
    ) -> AsyncGenerator[results.Event]:
        """Answers a conversation like chat(), yielding events like stream()."""
        request = pb.ChatStreamRequest(
            model=self.model,
            messages=prompts.messages_as_proto(messages),
            options=_options(params),
            request_id=request_id,
        )
        return self._stream(self._inference.ChatStream, request, timeout, resume)

    async def list_models(self, *, timeout: float | None = None) -> list[pb.Model]:
        """Returns the models served here."""
        response = await self._call(self._inference.ListModels, pb.ListModelsRequest(), timeout)
        return list(response.models)

    async def get_model(self, *, timeout: float | None = None) -> pb.GetModelResponse:
        """Returns what there is to know about the model: limits, defaults, how its workers compute it."""
        response: pb.GetModelResponse = await self._call(
            self._inference.GetModel, pb.GetModelRequest(model=self.model), timeout
        )
        return response

    async def tokenize(self, content: str | Iterable[prompts.Message], *, timeout: float | None = None) -> list[int]:
        """Returns the token ids of a text, or of a conversation after the model's template."""
        request = prompts.tokenize_request(self.model, content)
        return list((await self._call(self._inference.Tokenize, request, timeout)).token_ids)

    async def count_tokens(self, content: str | Iterable[prompts.Message], *, timeout: float | None = None) -> int:
        """Returns how many tokens a text or a conversation has."""
        request = prompts.tokenize_request(self.model, content)
        request.only_count = True
        return int((await self._call(self._inference.Tokenize, request, timeout)).num_tokens)

    async def detokenize(
        self, token_ids: Iterable[int], *, skip_special_tokens: bool = True, timeout: float | None = None
    ) -> str:
        """Returns the text of token ids."""
        request = pb.DetokenizeRequest(model=self.model, skip_special_tokens=skip_special_tokens)
        request.token_ids.extend(prompts.as_proto(list(token_ids)).token_ids.ids)
        return str((await self._call(self._inference.Detokenize, request, timeout)).text)

    async def status(self, *, timeout: float | None = None) -> admin_pb2.GetStatusResponse:
        """Returns what every worker, page and request is doing, in numbers."""
        response: admin_pb2.GetStatusResponse = await self._call(
            self._admin.GetStatus, admin_pb2.GetStatusRequest(), timeout
        )
        return response

    async def watch_status(
        self, interval: float = 1.0, *, timeout: float | None = None
    ) -> AsyncGenerator[admin_pb2.GetStatusResponse]:
        """Yields the status every `interval` seconds. To leave for certain, `aclose()` it."""
        call: Any = self._admin.WatchStatus(
            admin_pb2.WatchStatusRequest(interval_seconds=interval), timeout=timeout, metadata=self._metadata
        )
        try:
            async for response in call:
                yield response.status
        except grpc.aio.AioRpcError as error:
            raise self._translate(error) from error
        finally:
            call.cancel()

    async def abort(self, *request_ids: str, tenant: str | None = None, timeout: float | None = None) -> list[str]:
        """Ends the requests of these names, and all of a tenant's; returns the scheduler's own ids of those alive."""
        request = admin_pb2.AbortRequest(request_ids=request_ids, tenant=tenant)
        return list((await self._call(self._admin.Abort, request, timeout)).ids)

    async def list_requests(self, *, timeout: float | None = None) -> list[admin_pb2.RequestStatus]:
        """Returns the requests alive at the server, in order of arrival."""
        response = await self._call(self._admin.ListRequests, admin_pb2.ListRequestsRequest(), timeout)
        return list(response.requests)

    async def explain(self, request_id: str, *, timeout: float | None = None) -> list[admin_pb2.Explanation]:
        """Says why a request waits or what it is doing; one explanation for each request alive of that name."""
        request = admin_pb2.ExplainRequest(request_id=request_id)
        return list((await self._call(self._admin.Explain, request, timeout)).explanations)

    async def page_maps(
        self, worker_id: str = "", *, with_holders: bool = False, timeout: float | None = None
    ) -> list[admin_pb2.WorkerPageMap]:
        """Returns what every page of one worker, or of all, is doing."""
        request = admin_pb2.GetPageMapRequest(worker_id=worker_id, with_holders=with_holders)
        return list((await self._call(self._admin.GetPageMap, request, timeout)).workers)

    async def flush(self, *, timeout: float | None = None) -> int:
        """Empties the prefix cache and returns how many pages that frees."""
        response = await self._call(self._admin.Flush, admin_pb2.FlushRequest(), timeout)
        return int(response.freed_pages)

    async def pin(self, name: str, prompt: prompts.Prompt, *, salt: str = "", timeout: float | None = None) -> int:
        """Keeps a prefix in the cache under a name of your own and returns its length in tokens."""
        request = admin_pb2.PinRequest(name=name, salt=salt, prompt=prompts.as_proto(prompt))
        return int((await self._call(self._admin.Pin, request, timeout)).tokens)

    async def unpin(self, name: str, *, timeout: float | None = None) -> None:
        """Ends a pin."""
        await self._call(self._admin.Unpin, admin_pb2.UnpinRequest(name=name), timeout)

    async def list_pins(self, *, timeout: float | None = None) -> list[admin_pb2.PinStatus]:
        """Returns the pins, by name."""
        response = await self._call(self._admin.ListPins, admin_pb2.ListPinsRequest(), timeout)
        return list(response.pins)

    async def drain_worker(self, worker_id: str, *, timeout: float | None = None) -> int:
        """Gives a worker no new requests and returns how many sequences it still has."""
        request = admin_pb2.DrainWorkerRequest(worker_id=worker_id)
        return int((await self._call(self._admin.DrainWorker, request, timeout)).remaining)

    async def resume_worker(self, worker_id: str, *, timeout: float | None = None) -> None:
        """Gives a draining worker new requests again."""
        await self._call(self._admin.ResumeWorker, admin_pb2.ResumeWorkerRequest(worker_id=worker_id), timeout)

    def _resumes(self, resume: bool | None) -> bool:
        return self.resume if resume is None else resume

    def _stream(
        self, method: Any, request: Any, timeout: float | None, resume: bool | None
    ) -> AsyncGenerator[results.Event]:
        if self._resumes(resume):
            return resumed(partial(self._events, method), request, timeout)
        return self._events(method, request, timeout)

    async def _call(self, method: Any, request: Any, timeout: float | None) -> Any:
        try:
            return await method(request, timeout=timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._translate(error) from error

    async def _events(self, method: Any, request: Any, timeout: float | None) -> AsyncGenerator[results.Event]:
        call = method(request, timeout=timeout, metadata=self._metadata)
        try:
            async for response in call:
                if (event := results.stream_event(response)) is not None:
                    yield event
        except grpc.aio.AioRpcError as error:
            raise self._translate(error) from error
        finally:
            call.cancel()  # does nothing to a call that has ended

    def _translate(self, error: grpc.aio.AioRpcError) -> RequestError:
        code, details = error.code(), error.details() or ""
        if code is grpc.StatusCode.UNAVAILABLE and NOBODY_THERE.match(details):
            details = f"No server answers at {self.address}: {details.rpartition(': ')[2]}."
        return from_status(code.name, details, error.trailing_metadata() or ())


def _options(params: SamplingParams | None) -> pb.GenerationOptions | None:
    return None if params is None else params.as_proto()
