"""Between gRPC and our services: what is no message, and what nobody foresaw, ends in one sentence too.

gRPC would answer with the name and the words of whatever was raised, which are nobody's business but the operator's. And it
would cancel a stream that its client leaves while a message is being sent, which loses memory (`batches`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from inspect import isasyncgenfunction
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from octavo_scheduler.batches import Writes
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
        opened = _each(read) if handler.request_streaming else _one(read)
        if isasyncgenfunction(serve):
            shielded: Any = _shielded_stream(serve, opened)
        else:  # writes to the context, if it streams
            shielded = _shielded(serve, opened)
            shielded = _left_between_messages(shielded) if handler.response_streaming else shielded
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        made: grpc.RpcMethodHandler[Any, Any] = make(shielded, None, write)
        return made


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
        async with _shield(context):
            return await serve(opened(sent), context)

    return shielded


def _shielded_stream(serve: Any, opened: Any) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def shielded(sent: Any, context: Context) -> AsyncIterator[Any]:
        async with _shield(context), aclosing(serve(opened(sent), context)) as responses:
            async for response in responses:
                yield response

    return shielded


def _left_between_messages(serve: Any) -> Callable[[Any, Context], Awaitable[None]]:
    async def left(sent: Any, context: Context) -> None:
        writes = Writes(context)
        await writes.until_left(serve(sent, writes))

    return left


@asynccontextmanager
async def _shield(context: Context) -> AsyncIterator[None]:
    """Ends the call, unless it is ended already or its connection broke: then nobody is there to be told."""
    try:
        try:
            yield
        except (grpc.aio.AbortError, grpc.aio.InternalError):
            raise
        except DecodeError:
            await _end(InvalidRequest(UNREADABLE, reason="UNREADABLE"), context)
        except Exception:
            log.exception("a request ended in an error that nobody foresaw")
            await _end(RequestFailed(OUR_FAULT, reason="UNFORESEEN"), context)
    except grpc.aio.InternalError:
        raise asyncio.CancelledError from None


async def _end(error: RequestError, context: Context) -> None:
    await context.abort(error.status, str(error), error.metadata)
