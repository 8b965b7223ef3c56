"""Calls that other processes answer, handed on as bytes: nothing of them is read here, so nothing has to be written twice.

The caller's metadata goes with a call, its token included, and whoever answers asks for it again.
"""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import grpc

from octavo_scheduler import limits
from octavo_scheduler.errors import DETAILS, RequestError, SlowReader, Unavailable
from octavo_scheduler.outlet import Context, Outlet
from octavo_scheduler.roles import METHODS

OPTIONS = [
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    # What a slow reader leaves is to wait where the answer is made, which knows what to do about it; not here.
    ("grpc.http2.lookahead_bytes", limits.STREAM_BUFFER_BYTES),
    ("grpc.http2.bdp_probe", 0),
    # A process that ended is back within a second or two.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
ALL_SECONDS = 5.0
"""For a call that everybody gets."""
GONE = "the process that answers this request ended, and is started again; ask again"

_INFERENCE = ("Generate", "GenerateStream", "Chat", "ChatStream", "Tokenize", "Detokenize", "ListModels")
HERE = {
    *(f"/octavo.v1.InferenceService/{name}" for name in _INFERENCE),
    *(f"/vllm.grpc.engine.VllmEngine/{name}" for name in ("Generate", "GetModelInfo", "GetTokenizer")),
    *(f"/inference.GRPCInferenceService/{name}" for name in ("ModelInfer", "ModelStreamInfer", "ModelMetadata")),
}
"""Methods that need nothing of the core but what a front has."""
EVERYWHERE = {"/vllm.grpc.engine.VllmEngine/Abort"}
"""Methods about calls that any of the fronts may have."""


def channel(address: str) -> grpc.aio.Channel:
    """To another process of this scheduler."""
    return grpc.aio.insecure_channel(address, options=OPTIONS)


class RelayInterceptor(grpc.aio.ServerInterceptor):
    """Serves all methods that are not served here. The innermost one."""

    def __init__(self, inner: grpc.aio.Channel, siblings: Sequence[grpc.aio.Channel]) -> None:
        self._inner = inner
        self._siblings = siblings

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        method = handler_call_details.method
        if method in HERE or method not in METHODS:
            return await continuation(handler_call_details)
        if method in EVERYWHERE:
            return grpc.unary_unary_rpc_method_handler(self._to_all(method))
        return grpc.stream_stream_rpc_method_handler(self._onwards(method))

    def _onwards(self, method: str) -> Any:
        async def serve(messages: AsyncIterable[bytes], context: Context) -> None:
            await forward(self._inner, method, messages, context)

        return serve

    def _to_all(self, method: str) -> Any:
        async def serve(message: bytes, context: Context) -> bytes:
            metadata = _passed(context)
            methods: list[Any] = [each.unary_unary(method) for each in self._siblings]
            calls = [each(message, metadata=metadata, timeout=ALL_SECONDS) for each in methods]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            whole = [answer for answer in answers if isinstance(answer, bytes)]
            if not whole:
                await _end(Unavailable(GONE), context)
            return whole[0]

        return serve


async def forward(
    to: grpc.aio.Channel, method: str, messages: AsyncIterable[bytes] | Iterable[bytes], context: Context
) -> None:
    """Has another process answer, of whatever kind the method is: on the wire they are all streams."""
    outlet = Outlet(context)
    stub: Any = to.stream_stream(method)
    call = stub(messages, timeout=context.time_remaining(), metadata=_passed(context))
    try:
        async for message in call:
            await outlet.write(message)
        context.set_trailing_metadata(_pairs(await call.trailing_metadata()))
    except grpc.aio.AioRpcError as error:
        told = _pairs(error.trailing_metadata())
        if error.code() is grpc.StatusCode.UNAVAILABLE and DETAILS not in dict(told):  # these are gRPC's own words
            await _end(Unavailable(GONE), context)
        await context.abort(error.code(), error.details() or "", told)
    except SlowReader as error:
        await outlet.end(error)
    finally:
        call.cancel()


async def _end(error: RequestError, context: Context) -> None:
    await context.abort(error.status, str(error), error.metadata)


def _passed(context: Context) -> tuple[tuple[str, str | bytes], ...]:
    """The caller's metadata, without what each connection says for itself."""
    pairs = _pairs(context.invocation_metadata())
    return tuple((key, value) for key, value in pairs if not key.startswith(("grpc-", ":")) and key != "user-agent")


def _pairs(metadata: Any) -> tuple[tuple[str, str | bytes], ...]:
    items = metadata.items() if isinstance(metadata, Mapping) else metadata or ()
    return tuple((key, value) for key, value in items)
