"""Answers by name (see `kept`), where several processes have some: who is asked for a name that another one has hands it on.

A name belongs to the front process that was asked for it first, so that its stream does not pass through two of them. The
hub knows whose it is. When a process ends its names are anybody's: whoever resumes such an answer brings what it holds.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

from octavo_scheduler.frontend.relay import forward
from octavo_scheduler.frontend.uplink import Uplink
from octavo_scheduler.kept import Kept
from octavo_scheduler.outlet import Context

NAMED = {f"/octavo.v1.InferenceService/{name}" for name in ("Generate", "GenerateStream", "Chat", "ChatStream")}


class NamesInterceptor(grpc.aio.ServerInterceptor):
    """Without `siblings` every call is answered here: it was handed on already."""

    def __init__(
        self, number: int, uplink: Uplink, kept: Kept, siblings: Sequence[grpc.aio.Channel] | None = None
    ) -> None:
        self._number = number
        self._uplink = uplink
        self._kept = kept
        self._siblings = siblings

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method not in NAMED:
            return handler
        write: Any = handler.response_serializer
        serve = self._answered(handler) if self._siblings is None else self._routed(handler, method, self._siblings)
        return grpc.unary_stream_rpc_method_handler(
            serve,
            handler.request_deserializer,
            lambda message: message if isinstance(message, bytes) else write(message),
        )

    def _routed(
        self, handler: "grpc.RpcMethodHandler[Any, Any]", method: str, siblings: Sequence[grpc.aio.Channel]
    ) -> Any:
        here = self._answered(handler)

        async def serve(request: Any, context: Context) -> None:
            key = request.options.scheduling.tenant, request.request_id
            owner = self._number if not key[1] or key in self._kept else await self._uplink.owner(key)
            if owner == self._number:
                await here(request, context)
            else:
                await forward(siblings[owner], method, [request.SerializeToString()], context)

        return serve

    def _answered(self, handler: "grpc.RpcMethodHandler[Any, Any]") -> Any:
        """By the service; its name is free again unless the answer is kept."""
        stream: Any = handler.unary_stream
        one: Any = handler.unary_unary

        async def serve(request: Any, context: Context) -> None:
            key = request.options.scheduling.tenant, request.request_id
            try:
                if stream is not None:
                    await stream(request, context)
                else:
                    await context.write(await one(request, context))
            finally:
                if key[1] and key not in self._kept:
                    self._uplink.free(key)

        return serve
