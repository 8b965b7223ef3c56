"""One address that gRPC clients dial: a server, who may call it, and the lock of its socket file."""

import os
from collections.abc import Sequence

import grpc
from grpc_reflection.v1alpha import reflection

from octavo_scheduler import limits
from octavo_scheduler.errors import StartError
from octavo_scheduler.lock import PathLock, socket_path
from octavo_scheduler.roles import RoleInterceptor, Tokens
from octavo_scheduler.shield import ShieldInterceptor

SERVER_OPTIONS = [
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Clients that vanished without a word are noticed, and their pages free, after at most the sum of the first and the
    # third: gRPC waits as long as that (a minute, unless told otherwise) for the answer to a ping, whatever the second says.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES),
    ("grpc.max_metadata_size", limits.GRPC_METADATA_BYTES),
    # Else gRPC itself cancels calls of a burst at random; a full queue is to refuse them, with a time to try again.
    ("grpc.server.max_pending_requests", limits.GRPC_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", limits.GRPC_PENDING_CALLS),
]


class Endpoint:
    """Add servicers to `server`, then `start`. Raises StartError when the address is taken."""

    def __init__(
        self,
        listen: str,
        tokens: Tokens,
        credentials: grpc.ServerCredentials | None,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        *,
        is_shared: bool = False,
    ) -> None:
        """`interceptors`: further ones, which come when it is clear that the call is allowed. `is_shared`: other processes
        of this user may listen there too."""
        path = socket_path(listen)
        self._lock = PathLock(path) if path else None
        self.server = grpc.aio.server(
            interceptors=[RoleInterceptor(tokens), ShieldInterceptor(), *interceptors],
            options=[*SERVER_OPTIONS, ("grpc.so_reuseport", int(is_shared))],
        )
        previous = os.umask(0o177)  # a socket file is for its owner alone
        try:
            if credentials is not None:
                port = self.server.add_secure_port(listen, credentials)
            else:
                port = self.server.add_insecure_port(listen)
        except RuntimeError as error:
            self.release()
            raise StartError(f"cannot listen on {listen}: is the port in use?") from error
        finally:
            os.umask(previous)
        self.address = listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"

    async def start(self, services: Sequence[str]) -> None:
        """`services` are the names that reflection tells."""
        reflection.enable_server_reflection((*services, reflection.SERVICE_NAME), self.server)
        await self.server.start()

    async def stop(self, grace: float) -> None:
        await self.server.stop(grace)
        self.release()

    def release(self) -> None:
        """The lock of the socket file."""
        if self._lock is not None:
            self._lock.release()
