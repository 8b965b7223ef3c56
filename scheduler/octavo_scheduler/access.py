"""Who may connect: loopback and unix sockets freely, anything wider only with keys.

There is no switch that turns this off. A token is compared by digest in constant time; health checks need none, because
orchestrators cannot send one and they learn nothing but "serving".
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from octavo_scheduler.errors import StartError

OPEN_METHODS = frozenset({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"})


def is_local(address: str) -> bool:
    """Whether a gRPC or ZeroMQ address can be reached from this machine only."""
    for scheme in ("unix:", "ipc://", "inproc://"):
        if address.startswith(scheme):
            return True
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_keys(address: str, *, has_keys: bool, remedy: str) -> None:
    """Raises StartError for an address that others can reach when there are no keys to keep them out."""
    if not is_local(address) and not has_keys:
        raise StartError(f"{address} can be reached from other machines; {remedy}, or listen on 127.0.0.1")


def read_token(path: Path) -> bytes:
    """The bearer token's SHA-256. An empty file is an error, never "no token needed"."""
    token = _read(path).strip()
    if len(token) < 16:
        raise StartError(f"the token in {path} has {len(token)} characters; it needs at least 16")
    return hashlib.sha256(token).digest()


def server_credentials(certificate: Path, key: Path) -> grpc.ServerCredentials:
    """Raises StartError, which names the file, for what gRPC would refuse without saying why."""
    from cryptography import x509  # it takes a while, and without TLS nobody needs it
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    chain, secret = _read(certificate), _read(key)
    try:
        public_key = x509.load_pem_x509_certificates(chain)[0].public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise StartError(f"{certificate} holds no certificate in PEM") from error
    try:
        private_key = load_pem_private_key(secret, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StartError(f"{key} holds no private key in PEM, readable without a password") from error
    if private_key.public_key() != public_key:
        raise StartError(f"the key in {key} is not that of the certificate in {certificate}")
    return grpc.ssl_server_credentials([(secret, chain)])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from error


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Refuses every method but health checks without `authorization: Bearer <token>`."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        handler = await continuation(handler_call_details)
        if handler_call_details.method in OPEN_METHODS or self._is_bearer(handler_call_details.invocation_metadata):
            return handler
        return _refuse(handler)

    def _is_bearer(self, metadata: Any) -> bool:
        given = [value for key, value in metadata or () if key == "authorization"]
        if len(given) != 1 or not isinstance(given[0], str) or not given[0].startswith("Bearer "):
            return False
        digest = hashlib.sha256(given[0].removeprefix("Bearer ").encode()).digest()
        return hmac.compare_digest(digest, self._digest)


def _refuse(handler: "grpc.RpcMethodHandler[Any, Any] | None") -> "grpc.RpcMethodHandler[Any, Any]":
    """A handler of the same kind that answers UNAUTHENTICATED. A method that does not exist is refused alike."""

    async def unary(_: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a valid bearer token is needed")

    async def stream(_: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a valid bearer token is needed")
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
