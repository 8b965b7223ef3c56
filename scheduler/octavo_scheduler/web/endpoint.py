"""One address that HTTP clients dial."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from google.protobuf.descriptor import ServiceDescriptor

from octavo_scheduler.access import TlsFiles
from octavo_scheduler.errors import StartError
from octavo_scheduler.limits import HTTP_CONNECTIONS
from octavo_scheduler.lock import PathLock, socket_path
from octavo_scheduler.roles import Tokens
from octavo_scheduler.web.app import Web
from octavo_scheduler.web.guard import Guard

LAST_SECONDS = 1
"""That streams which are still there have when the server stops."""


class HttpEndpoint:
    """`start` it with the services. Raises StartError when the address is taken."""

    def __init__(self, listen: str, tokens: Tokens, tls: TlsFiles | None) -> None:
        path = socket_path(listen)
        self._lock = PathLock(path) if path else None
        self._tls = tls
        try:
            self._socket = _bound(path, listen)
        except OSError as error:
            self.release()
            raise StartError(f"cannot listen on {listen}: {error.strerror}") from error
        host = "" if path else listen.rpartition(":")[0]
        self.address = listen if path else f"{host}:{self._socket.getsockname()[1]}"
        self._guard = Guard(tokens, host)

    async def start(self, services: Mapping[ServiceDescriptor, object], status: Callable[[Any, Any], Any]) -> None:
        tls = self._tls
        config = uvicorn.Config(
            Web(services, status, self._guard).app,
            http="h11",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=HTTP_CONNECTIONS,
            timeout_graceful_shutdown=LAST_SECONDS,
            ssl_certfile=tls.certificate if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_ca_certs=str(tls.client_ca) if tls and tls.client_ca else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.client_ca else ssl.CERT_NONE,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([self._socket]))
        while not self._server.started:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._server.should_exit = True
        await self._serving
        self.release()

    def release(self) -> None:
        """The lock of the socket file."""
        if self._lock is not None:
            self._lock.release()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the scheduler's."""
        yield


def _bound(path: Path | None, listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_UNIX if path else socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    previous = os.umask(0o177)  # a socket file is for its owner alone
    try:
        if path is None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            path.unlink(missing_ok=True)  # we have its lock: whoever made it is gone
        made.bind(str(path) if path else (host, int(port)))
        made.listen()
    except OSError:
        made.close()
        raise
    finally:
        os.umask(previous)
    return made
