"""The client for asyncio. Everything else in this package that talks to a server goes through it."""

import re
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from octavo.v1 import admin_pb2, admin_pb2_grpc, inference_pb2_grpc
from octavo.v1 import inference_pb2 as pb

from octavo_client import prompts, results
from octavo_client.channel import call_metadata, open_channel
from octavo_client.errors import RequestError, from_status
from octavo_client.params import SamplingParams

DEFAULT_ADDRESS = "127.0.0.1:50051"
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
        model: str = "",
    ) -> None:
        """`address` is "HOST:PORT" or "unix:PATH"; `model` a name of list_models(), empty for the only one."""
        self.address = address
        self.model = model
        self._metadata = call_metadata(token_file)
        self._channel = open_channel(address, ca_file)
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
    ) -> results.RequestOutput:
        """Continues a prompt and returns the whole answer. Without `params` the server's defaults hold."""
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
    ) -> AsyncGenerator[results.Event]:
        """Continues a prompt and yields one Start, Deltas and one End. To leave early for certain, `aclose()` it."""
        request = pb.GenerateStreamRequest(
            model=self.model, prompt=prompts.as_proto(prompt), options=_options(params), request_id=request_id
        )
        return self._events(self._inference.GenerateStream, request, timeout)

    async def chat(
        self,
        messages: Iterable[prompts.Message],
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
        request_id: str = "",
    ) -> results.RequestOutput:
        """Answers a conversation, through the model's chat template, and returns the whole answer."""
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
    ) -> AsyncGenerator[results.Event]:
        """Answers a conversation like chat(), yielding events like stream()."""
        request = pb.ChatStreamRequest(
            model=self.model,
            messages=prompts.messages_as_proto(messages),
            options=_options(params),
            request_id=request_id,
        )
        return self._events(self._inference.ChatStream, request, timeout)

    async def list_models(self, *, timeout: float | None = None) -> list[pb.Model]:
        """Returns the models served here."""
        response = await self._call(self._inference.ListModels, pb.ListModelsRequest(), timeout)
        return list(response.models)

    async def status(self, *, timeout: float | None = None) -> admin_pb2.GetStatusResponse:
        """Returns what every worker, page and request is doing, in numbers."""
        response: admin_pb2.GetStatusResponse = await self._call(
            self._admin.GetStatus, admin_pb2.GetStatusRequest(), timeout
        )
        return response

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
        return from_status(code, details, error.trailing_metadata() or ())


def _options(params: SamplingParams | None) -> pb.GenerationOptions | None:
    return None if params is None else params.as_proto()
