"""Between gRPC and our services: what is no message, and what nobody foresaw, ends in one sentence too.

gRPC would answer with the name and the words of whatever was raised, which are nobody's business but the operator's.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from inspect import isasyncgenfunction
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from octavo_scheduler.errors import InvalidRequest, RequestError, RequestFailed

log = logging.getLogger("octavo.scheduler")

Context = grpc.aio.ServicerContext[Any, Any]
UNREADABLE = "the request is no message of this method's type"
OUR_FAULT = "the server failed at this request; its log says why"


class ShieldInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every method, whether messages go one at a time or in streams."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        read, write = handler.request_deserializer, handler.response_serializer
        kind = "_".join(
            "stream" if streams else "unary" for streams in (handler.request_streaming, handler.response_streaming)
        )
        serve: Any = getattr(handler, kind)
        shield = _shielded_stream if isasyncgenfunction(serve) else _shielded  # others write to the context
        opened = _each(read) if handler.request_streaming else _one(read)
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        shielded: grpc.RpcMethodHandler[Any, Any] = make(shield(serve, opened), None, write)
        return shielded


Read = Callable[[bytes], Any] | None


def _one(read: Read) -> Callable[[bytes], Any]:
    return lambda data: read(data) if read else data


def _each(read: Read) -> Callable[[AsyncIterator[bytes]], AsyncIterator[Any]]:
    async def opened(messages: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for data in messages:
            yield read(data) if read else data

    return opened


def _shielded(serve: Any, opened: Any) -> Callable[[Any, Context], Awaitable[Any]]:
    async def shielded(sent: Any, context: Context) -> Any:
        try:
            return await serve(opened(sent), context)
        except Exception as error:
            await _end(error, context)

    return shielded


def _shielded_stream(serve: Any, opened: Any) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def shielded(sent: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async with aclosing(serve(opened(sent), context)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:
            await _end(error, context)

    return shielded


async def _end(error: Exception, context: Context) -> None:
    """Ends the call, unless it is ended already."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    told: RequestError = InvalidRequest(UNREADABLE, reason="UNREADABLE")
    if not isinstance(error, DecodeError):
        log.error("a request ended in an error that nobody foresaw", exc_info=error)
        told = RequestFailed(OUR_FAULT, reason="UNFORESEEN")
    await context.abort(told.status, str(told), told.metadata)
