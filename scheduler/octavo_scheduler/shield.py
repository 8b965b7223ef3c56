"""Between gRPC and our services: what is no message, and what nobody foresaw, ends in one sentence too.

gRPC would answer with the name and the words of whatever was raised, which are nobody's business but the operator's.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from inspect import isasyncgenfunction
from typing import Any

import grpc
from google.protobuf.message import DecodeError

log = logging.getLogger("octavo.scheduler")

Context = grpc.aio.ServicerContext[Any, Any]
UNREADABLE = "the request is no message of this method's type"
OUR_FAULT = "the server failed at this request; its log says why"


class ShieldInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every method that takes one message; all of ours do."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler
        read, write = handler.request_deserializer, handler.response_serializer
        if handler.response_streaming:
            serve: Any = handler.unary_stream
            shield = _shielded_stream if isasyncgenfunction(serve) else _shielded  # others write to the context
            return grpc.unary_stream_rpc_method_handler(shield(serve, read), None, write)
        return grpc.unary_unary_rpc_method_handler(_shielded(handler.unary_unary, read), None, write)


def _shielded(serve: Any, read: Any) -> Callable[[bytes, Context], Awaitable[Any]]:
    async def shielded(data: bytes, context: Context) -> Any:
        async with _shield(context):
            return await serve(read(data) if read else data, context)

    return shielded


def _shielded_stream(serve: Any, read: Any) -> Callable[[bytes, Context], AsyncIterator[Any]]:
    async def shielded(data: bytes, context: Context) -> AsyncIterator[Any]:
        async with _shield(context), aclosing(serve(read(data) if read else data, context)) as responses:
            async for response in responses:
                yield response

    return shielded


@asynccontextmanager
async def _shield(context: Context) -> AsyncIterator[None]:
    """Ends the call, unless it is ended already or its connection broke: then nobody is there to be told."""
    try:
        try:
            yield
        except (grpc.aio.AbortError, grpc.aio.InternalError):
            raise
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, UNREADABLE)
        except Exception:
            log.exception("a request ended in an error that nobody foresaw")
            await context.abort(grpc.StatusCode.INTERNAL, OUR_FAULT)
    except grpc.aio.InternalError:
        raise asyncio.CancelledError from None
