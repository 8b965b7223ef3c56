"""`python -m octavo_scheduler`: the loop's thread beside a gRPC server."""

import asyncio
import logging
import secrets
import signal
import sys
import threading
import time

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection
from octavo.v1 import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc

from octavo_scheduler import access, limits
from octavo_scheduler.admin import AdminService
from octavo_scheduler.config import Config, read_config
from octavo_scheduler.core import Core
from octavo_scheduler.errors import StartError
from octavo_scheduler.front import Front
from octavo_scheduler.lifeline import watch_lifeline
from octavo_scheduler.link import RouterLink
from octavo_scheduler.loop import Loop
from octavo_scheduler.model import ServedModel, load_model
from octavo_scheduler.service import InferenceService

SERVICES = (
    inference_pb2.DESCRIPTOR.services_by_name["InferenceService"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
)

SERVER_OPTIONS = [
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES),
    ("grpc.max_metadata_size", limits.GRPC_METADATA_BYTES),
    ("grpc.so_reuseport", 0),
]

DRAIN_SECONDS = 30.0
"""How long running streams may go on after SIGTERM."""


def refuse_unpickling(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook: nothing in this process may unpickle."""
    if event == "pickle.find_class":
        raise RuntimeError(f"unpickling is not allowed here: {arguments}")


class Scheduler:
    """One scheduler process: model, loop, link and server."""

    def __init__(self, config: Config, model: ServedModel) -> None:
        self.config = config
        self.model = model
        self.link = RouterLink(config.workers, config.curve)

    async def serve(self) -> None:
        """Until SIGTERM or SIGINT; then running streams may end, new ones are refused."""
        stopping = asyncio.Event()
        event_loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            event_loop.add_signal_handler(number, stopping.set)
        core = Core(self.config.settings)
        health = health_aio.HealthServicer()
        front = Front(self.model, lambda command: loop.post(command))
        await health.set("", health_pb2.HealthCheckResponse.SERVING)
        await self._announce(health, is_ready=False)
        announcements: set[asyncio.Task[None]] = set()

        def on_ready(is_ready: bool) -> None:
            announcement = asyncio.create_task(self._announce(health, is_ready))
            announcements.add(announcement)
            announcement.add_done_callback(announcements.discard)

        loop = Loop(
            core,
            self.link,
            time.monotonic,
            front.deliver,
            lambda is_ready: event_loop.call_soon_threadsafe(on_ready, is_ready),
            secrets.randbits(63),
        )
        server, address = self._server(front, loop, health)
        await server.start()
        thread = threading.Thread(target=loop.run, name="loop", daemon=True)
        thread.start()
        print(f"octavo scheduler: serving {self.model.name} on {address}, workers dial {self.link.address}", flush=True)
        await stopping.wait()
        front.is_draining = True
        await health.enter_graceful_shutdown()
        await server.stop(DRAIN_SECONDS)
        loop.stop()
        thread.join()
        self.link.close()

    def _server(self, front: Front, loop: Loop, health: health_aio.HealthServicer) -> tuple[grpc.aio.Server, str]:
        token = self.config.token_file
        interceptors = [access.TokenInterceptor(access.read_token(token))] if token else []
        server = grpc.aio.server(interceptors=interceptors, options=SERVER_OPTIONS)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(InferenceService(front), server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminService(self.model.name, loop), server)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        names = (*SERVICES, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        listen = self.config.listen
        try:
            if self.config.tls:
                port = server.add_secure_port(listen, access.server_credentials(*self.config.tls))
            else:
                port = server.add_insecure_port(listen)
        except RuntimeError as error:
            raise StartError(f"cannot listen on {listen}: is the port in use?") from error
        address = listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"
        return server, address

    async def _announce(self, health: health_aio.HealthServicer, is_ready: bool) -> None:
        serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
        for name in SERVICES:
            await health.set(name, serving if is_ready else not_serving)


def main() -> int:
    sys.addaudithook(refuse_unpickling)
    try:
        config = read_config()
        logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        if config.lifeline is not None:
            watch_lifeline(config.lifeline)
        asyncio.run(Scheduler(config, load_model(config.model, config.served_model_name)).serve())
    except StartError as error:
        print(f"octavo scheduler: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
