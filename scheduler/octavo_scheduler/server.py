"""One scheduler: the loop's thread and the gRPC server, started and stopped together."""

import asyncio
import logging
import secrets
import threading
import time

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection
from octavo.v1 import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc

from octavo_scheduler import access, limits
from octavo_scheduler.admin import AdminService
from octavo_scheduler.config import Config
from octavo_scheduler.core import Core
from octavo_scheduler.errors import StartError
from octavo_scheduler.front import Front
from octavo_scheduler.link import RouterLink
from octavo_scheduler.lock import PathLock, socket_path
from octavo_scheduler.loop import Loop
from octavo_scheduler.model import ServedModel
from octavo_scheduler.record import Recorder
from octavo_scheduler.service import InferenceService

log = logging.getLogger("octavo.scheduler")

SERVICES = (
    inference_pb2.DESCRIPTOR.services_by_name["InferenceService"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
)

SERVER_OPTIONS = [
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Clients that vanished without a word are noticed, and their pages free, after at most the sum of these two.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES),
    ("grpc.max_metadata_size", limits.GRPC_METADATA_BYTES),
    ("grpc.so_reuseport", 0),
    # Else gRPC itself cancels calls of a burst at random; a full queue is to refuse them, with a time to try again.
    ("grpc.server.max_pending_requests", limits.GRPC_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", limits.GRPC_PENDING_CALLS),
]


class Scheduler:
    """Made inside a running event loop. Raises StartError when an address is taken or a key cannot be read."""

    def __init__(self, config: Config, model: ServedModel) -> None:
        self._event_loop = asyncio.get_running_loop()
        self._announcements: set[asyncio.Task[None]] = set()
        self.link = RouterLink(config.workers, config.curve)
        self.front = Front(model, lambda command: self.loop.post(command))
        self._recorder = _recorder(config, self.link)
        self.loop = Loop(
            self._recorder or Core(config.settings),
            self.link,
            clock=time.monotonic,
            deliver=self.front.deliver,
            on_ready=lambda is_ready: self._event_loop.call_soon_threadsafe(self._announce, is_ready),
            boot_id=secrets.randbits(63),
            vocab_size=model.vocab_size,
            after_turn=self._recorder.write if self._recorder else lambda: None,
        )
        self._health = health_aio.HealthServicer()
        self._thread = threading.Thread(target=self._run_loop, name="loop", daemon=True)
        self.failed = asyncio.Event()
        """Set when the loop's thread died of an error: nothing can be served any more."""
        try:
            self._server = self._make_server(config, model)
            self.address = self._listen(config)
        except StartError:
            self.link.close()
            if self._recorder is not None:
                self._recorder.discard()
            raise

    async def start(self) -> None:
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        await self._set_serving(is_ready=False)
        await self._server.start()
        self._thread.start()

    async def stop(self, grace: float) -> None:
        """Refuses new requests, lets running ones end within `grace` seconds, says goodbye to the workers."""
        await self._health.enter_graceful_shutdown()
        await self.front.drain(grace)
        await self._server.stop(0.5)
        await self.front.drain(1.0)
        self.loop.stop()
        self._thread.join()
        self.link.close()
        if self._lock is not None:
            self._lock.release()

    def _make_server(self, config: Config, model: ServedModel) -> grpc.aio.Server:
        interceptors = [access.TokenInterceptor(access.read_token(config.token_file))] if config.token_file else []
        server = grpc.aio.server(interceptors=interceptors, options=SERVER_OPTIONS)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(InferenceService(self.front), server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminService(self.front, self.loop), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        reflection.enable_server_reflection((*SERVICES, health_name, reflection.SERVICE_NAME), server)
        return server

    def _listen(self, config: Config) -> str:
        listen, path = config.listen, socket_path(config.listen)
        credentials = access.server_credentials(*config.tls) if config.tls else None
        self._lock = PathLock(path) if path else None
        try:
            if credentials:
                port = self._server.add_secure_port(listen, credentials)
            else:
                port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise StartError(f"cannot listen on {listen}: is the port in use?") from error
        return listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"

    def _run_loop(self) -> None:
        try:
            self.loop.run()
        except Exception:
            log.exception("the scheduling loop failed")
            self._event_loop.call_soon_threadsafe(self.failed.set)
        finally:
            if self._recorder is not None:
                self._recorder.close()

    def _announce(self, is_ready: bool) -> None:
        announcement = asyncio.create_task(self._set_serving(is_ready))
        self._announcements.add(announcement)
        announcement.add_done_callback(self._announcements.discard)

    async def _set_serving(self, is_ready: bool) -> None:
        """The empty name means the process is alive; a service's name, that a worker is here to serve it."""
        statuses = health_pb2.HealthCheckResponse
        for name in SERVICES:
            await self._health.set(name, statuses.SERVING if is_ready else statuses.NOT_SERVING)


def _recorder(config: Config, link: RouterLink) -> Recorder | None:
    if config.record is None:
        return None
    try:
        return Recorder(config.settings, config.record, has_tokens=config.record_tokens)
    except OSError as error:
        link.close()
        raise StartError(f"cannot record to {config.record}: {error.strerror}") from error
