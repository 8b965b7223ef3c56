"""The paths, and how messages become JSON."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.json_format import MessageToJson, Parse, ParseError
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from octavo_scheduler.exposition import CONTENT_TYPE, exposition
from octavo_scheduler.limits import HTTP_BODY_BYTES
from octavo_scheduler.roles import METHODS, Role
from octavo_scheduler.shield import OUR_FAULT, UNREADABLE
from octavo_scheduler.web.call import Ended, HttpCall, unless_left
from octavo_scheduler.web.guard import BrowserHeaders, Guard

log = logging.getLogger("octavo.scheduler")

STATIC = Path(__file__).parent / "static"
JSON = "application/json"
CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
"""HTTP's words for what gRPC says; 500 for all others."""


@dataclass(frozen=True)
class Method:
    """One method of a service."""

    serve: Callable[[Any, Any], Any]
    request: type[Message]
    is_stream: bool
    role: Role

    @classmethod
    def of(cls, service: object, method: MethodDescriptor, role: Role) -> "Method":
        request = GetMessageClass(method.input_type)
        return cls(getattr(service, method.name), request, method.server_streaming, role)


class Web:
    """The application. `services` are served under their full names; `status` answers what the metrics are made of."""

    def __init__(
        self, services: Mapping[ServiceDescriptor, object], status: Callable[[Any, Any], Any], guard: Guard
    ) -> None:
        self._guard = guard
        self._status = status
        self._methods: dict[str, Method] = {}
        for descriptor, service in services.items():
            for method in descriptor.methods:
                path = f"/{descriptor.full_name}/{method.name}"
                if not method.client_streaming:
                    self._methods[path] = Method.of(service, method, METHODS[path])
        self.app = Starlette(
            routes=[
                Route("/metrics", self._metrics),
                Route("/{service}/{method}", self._call, methods=["POST"]),
                Mount("/", self._static),
            ],
            middleware=[Middleware(BrowserHeaders)],
        )
        self._files = StaticFiles(directory=STATIC, html=True)

    async def _static(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._guard.refusal(Request(scope).headers, Role.ANYONE)
        app = _error(*refusal) if refusal else self._files
        await app(scope, receive, send)

    async def _metrics(self, request: Request) -> Response:
        refusal = self._guard.refusal(request.headers, Role.INFER)
        if refusal is not None:
            return _error(*refusal)
        try:
            return Response(exposition(await self._status(None, HttpCall(()))), media_type=CONTENT_TYPE)
        except Ended as error:
            return _error(CODES.get(error.status, 500), error.sentence)

    async def _call(self, request: Request) -> Response:
        method = self._methods.get(request.url.path)
        refusal = self._guard.refusal(request.headers, Role.ADMIN if method is None else method.role)
        if refusal is not None:
            return _error(*refusal)
        if method is None:
            return _error(404, "there is no such method")
        if request.headers.get("content-type", "").partition(";")[0].strip() != JSON:
            return _error(415, f"the content type must be {JSON}")
        try:
            body = await _read(request)
            if body is None:
                return _error(413, f"a request has at most {HTTP_BODY_BYTES} bytes")
            message = await asyncio.to_thread(_parsed, body, method.request)
        except (ParseError, ValueError, RecursionError):
            return _error(400, UNREADABLE)
        except ClientDisconnect:
            return Response()
        call = HttpCall(request.headers.items())
        if method.is_stream:
            return StreamingResponse(_server_sent(call.messages(method.serve, message)), media_type="text/event-stream")
        return await _answer(request, method.serve(message, call))


async def _answer(request: Request, work: Any) -> Response:
    try:
        return Response(_as_json(await unless_left(work, request.receive())), media_type=JSON)
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        return Response()
    except Ended as error:
        return JSONResponse(_status_of(error), CODES.get(error.status, 500))
    except Exception:
        log.exception("a request ended in an error that nobody foresaw")
        return _error(500, OUR_FAULT)


async def _server_sent(messages: AsyncIterator[Message]) -> AsyncIterator[str]:
    """An event for each message; one named `error` where the stream ends with another status than OK."""
    try:
        async for message in messages:
            yield f"data: {_as_json(message)}\n\n"
    except Ended as error:
        yield f"event: error\ndata: {json.dumps(_status_of(error))}\n\n"
    except Exception:
        log.exception("a request ended in an error that nobody foresaw")
        yield f"event: error\ndata: {json.dumps({'code': grpc.StatusCode.INTERNAL.name, 'message': OUR_FAULT})}\n\n"
    finally:
        await messages.aclose()  # type: ignore[attr-defined]


async def _read(request: Request) -> bytes | None:
    """The body, or None for one that is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > HTTP_BODY_BYTES:
            return None
    return bytes(body)


def _parsed(body: bytes, kind: type[Message]) -> Message:
    return Parse(body.decode(), kind())


def _as_json(message: Message) -> str:
    return MessageToJson(
        message, indent=None, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _status_of(error: Ended) -> dict[str, str]:
    return {"code": error.status.name, "message": error.sentence}


def _error(code: int, sentence: str) -> Response:
    names = {number: status.name for status, number in CODES.items()}
    return JSONResponse({"code": names.get(code, "INVALID_ARGUMENT"), "message": sentence}, code)
