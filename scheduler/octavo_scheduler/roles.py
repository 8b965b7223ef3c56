"""Who may call what: one table of all methods, one interceptor that refuses everything that is not in it.

A token has a role, and a role may do whatever a lower one may. Tokens are compared as digests, in constant time. Where no
tokens are given at all, which only an address of this machine allows, whoever reaches it may call every method of the
table.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any

import grpc

from octavo_scheduler.access import read_file
from octavo_scheduler.errors import PermissionDenied, RequestError, StartError, Unauthenticated


class Role(IntEnum):
    """What a caller may do."""

    ANYONE = 0
    INFER = 1
    ADMIN = 2


def _methods(service: str, *names: str) -> Iterable[str]:
    return (f"/{service}/{name}" for name in names)


_INFERENCE = (
    *("Generate", "GenerateStream", "Chat", "ChatStream"),
    *("Tokenize", "Detokenize", "ListModels", "GetModel"),
)
_ADMIN = (
    *("GetStatus", "ListRequests", "Explain", "GetPageMap", "Flush", "Pin", "Unpin", "ListPins"),
    *("WatchStatus", "Abort", "DrainWorker", "ResumeWorker"),
)
# KV events hold the tokens of everybody's prompts.
_VLLM_ADMIN = ("FlushCache", "SubscribeKvEvents")
_VLLM = ("Generate", "Abort", "HealthCheck", "GetModelInfo", "GetServerInfo", "GetLoads", "GetTokenizer")
_KSERVE = (
    *("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata"),
    *("ModelInfer", "ModelStreamInfer"),
)
# Orchestrators cannot send a token, and learn nothing but "serving" from Check. Watch keeps a stream open, so it needs one.
METHODS: dict[str, Role] = {
    **dict.fromkeys(_methods("grpc.health.v1.Health", "Check"), Role.ANYONE),
    **dict.fromkeys(_methods("grpc.health.v1.Health", "Watch"), Role.INFER),
    **dict.fromkeys(_methods("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo"), Role.INFER),
    **dict.fromkeys(_methods("octavo.v1.InferenceService", *_INFERENCE), Role.INFER),
    **dict.fromkeys(_methods("octavo.v1.AdminService", *_ADMIN), Role.ADMIN),
    **dict.fromkeys(_methods("inference.GRPCInferenceService", *_KSERVE), Role.INFER),
    **dict.fromkeys(_methods("vllm.grpc.engine.VllmEngine", *_VLLM), Role.INFER),
    **dict.fromkeys(_methods("vllm.grpc.engine.VllmEngine", *_VLLM_ADMIN), Role.ADMIN),
}
"""Role that each method needs. A method that is missing here is refused to everybody."""

FEWEST_CHARACTERS = 16
"""Of a token."""
FORBIDDEN = "this token does not allow this method; administrators have a token of their own"


def digest_of(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def read_tokens(path: Path) -> list[bytes]:
    """SHA-256 of each token of a file, one a line. A file without any is an error, never "no token needed"."""
    tokens = [line.strip() for line in read_file(path).splitlines() if line.strip()]
    if not tokens:
        raise StartError(f"{path} holds no token; write one a line, or leave the flag out")
    for number, token in enumerate(tokens, 1):
        if len(token) < FEWEST_CHARACTERS:
            raise StartError(f"token {number} of {path} has {len(token)} characters, not {FEWEST_CHARACTERS} or more")
        if len(token.split()) > 1 or not token.isascii():
            raise StartError(f"token {number} of {path} is not one word of ASCII")
    return [digest_of(token) for token in tokens]


class Tokens:
    """The tokens that are known. Raises StartError for a file that has none, and for a token with two roles."""

    def __init__(self, infer: Path | None = None, admin: Path | None = None) -> None:
        self._files = ((infer, Role.INFER), (admin, Role.ADMIN))
        self.reload()

    def reload(self) -> None:
        """Reads the files again, for calls from now on. Raises StartError, and then the tokens are those of before."""
        roles: dict[bytes, Role] = {}
        for path, role in self._files:
            for digest in read_tokens(path) if path else ():
                if roles.setdefault(digest, role) is not role:
                    infer, admin = (file for file, _ in self._files)
                    raise StartError(
                        f"{infer} and {admin} hold the same token; who may infer would be an administrator"
                    )
        self._roles = roles

    def __bool__(self) -> bool:
        return bool(self._roles)

    def role_of(self, metadata: Any) -> Role:
        """The caller's role; ANYONE without a token, with a wrong one and with several."""
        given = [value for key, value in metadata or () if key == "authorization"]
        if len(given) != 1 or not isinstance(given[0], str) or not given[0].startswith("Bearer "):
            return Role.ANYONE
        digest = digest_of(given[0].removeprefix("Bearer ").encode())
        found = [role for known, role in self._roles.items() if hmac.compare_digest(digest, known)]
        return max(found, default=Role.ANYONE)


class RoleInterceptor(grpc.aio.ServerInterceptor):
    """Refuses every method that the table does not grant to the caller. Without `tokens` all callers are local."""

    def __init__(self, tokens: Tokens, methods: dict[str, Role] = METHODS) -> None:
        self._tokens = tokens
        self._methods = methods

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        handler = await continuation(handler_call_details)
        role = self._tokens.role_of(handler_call_details.invocation_metadata) if self._tokens else Role.ADMIN
        needed = self._methods.get(handler_call_details.method)
        if needed is not None and role >= needed:
            return handler
        if role is Role.ANYONE:  # also for methods that do not exist: a stranger learns nothing
            return _refusal(handler, Unauthenticated("a valid bearer token is needed"))
        if handler is None:
            return None
        return _refusal(handler, PermissionDenied(FORBIDDEN))


def _refusal(
    handler: "grpc.RpcMethodHandler[Any, Any] | None", error: RequestError
) -> "grpc.RpcMethodHandler[Any, Any]":
    """A handler of the same kind that ends every call so."""

    async def unary(_: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await context.abort(error.status, str(error), error.metadata)

    async def stream(_: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        await context.abort(error.status, str(error), error.metadata)
        yield

    match (handler is not None and handler.request_streaming, handler is not None and handler.response_streaming):
        case (False, False):
            return grpc.unary_unary_rpc_method_handler(unary)
        case (False, True):
            return grpc.unary_stream_rpc_method_handler(stream)
        case (True, False):
            return grpc.stream_unary_rpc_method_handler(unary)
        case _:
            return grpc.stream_stream_rpc_method_handler(stream)
