"""One scheduler: the loop's thread and the gRPC server, started and stopped together."""

import asyncio
import logging
import secrets
import threading
import time
from typing import TYPE_CHECKING

from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from octavo.v1 import admin_pb2, admin_pb2_grpc

from octavo_scheduler.access import server_credentials
from octavo_scheduler.admin import AdminService
from octavo_scheduler.config import Config
from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Output
from octavo_scheduler.endpoint import Endpoint
from octavo_scheduler.errors import StartError
from octavo_scheduler.front import Front
from octavo_scheduler.frontend.fleet import Fleet
from octavo_scheduler.link import RouterLink
from octavo_scheduler.loop import Loop
from octavo_scheduler.model import ServedModel
from octavo_scheduler.record import Recorder
from octavo_scheduler.roles import Tokens
from octavo_scheduler.services import INFERENCE, KSERVE, VLLM, ClientServices, trace

if TYPE_CHECKING:
    from octavo_scheduler.traces import Traces
    from octavo_scheduler.web.endpoint import HttpEndpoint

log = logging.getLogger("octavo.scheduler")

ADMIN = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class Scheduler:
    """Made inside a running event loop. Raises StartError when an address is taken or a key cannot be read."""

    def __init__(self, config: Config, model: ServedModel) -> None:
        self._event_loop = asyncio.get_running_loop()
        self._announcements: set[asyncio.Task[None]] = set()
        self.link = RouterLink(config.workers, config.curve)
        self.front = Front(model, lambda command: self.loop.post(command))
        self._fleet: Fleet | None = None
        self._recorder = _recorder(config, self.link)
        self.loop = Loop(
            self._recorder or Core(config.settings),
            self.link,
            clock=time.monotonic,
            deliver=self._deliver if config.frontends else self.front.deliver,
            on_ready=lambda is_ready: self._event_loop.call_soon_threadsafe(self._announce, is_ready),
            boot_id=secrets.randbits(63),
            vocab_size=model.vocab_size,
            after_turn=self._recorder.write if self._recorder else lambda: None,
        )
        self._health = health_aio.HealthServicer()
        self._thread = threading.Thread(target=self._run_loop, name="loop", daemon=True)
        self.failed = asyncio.Event()
        """Set when the loop's thread died of an error: nothing can be served any more."""
        self._endpoints: list[Endpoint] = []
        self._http: HttpEndpoint | None = None
        self._clients = ClientServices(self.front, self.loop)
        self._traces: Traces | None = None
        self._serves_admin_by_http = False
        try:
            self._listen(config)
        except StartError:
            self._release()
            raise
        self._admin = AdminService(self.front, self.loop, self._fleet)

    async def start(self) -> None:
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        await self._set_serving(is_ready=False)
        for endpoint in self._endpoints:
            await endpoint.start(self._serve(endpoint))
        if self._http is not None:
            by_http: dict[ServiceDescriptor, object] = {INFERENCE: self._clients.inference}
            if self._serves_admin_by_http:
                by_http[ADMIN] = self._admin
            await self._http.start(by_http, self._admin.GetStatus)
        self._thread.start()
        if self._fleet is not None:
            try:
                await self._fleet.start()
            except StartError:
                await self.stop(grace=0)
                raise

    async def stop(self, grace: float) -> None:
        """Refuses new requests, lets running ones end within `grace` seconds, says goodbye to the workers."""
        await self._health.enter_graceful_shutdown()
        await asyncio.gather(self.front.drain(grace), *([self._fleet.stop(grace)] if self._fleet is not None else []))
        await asyncio.gather(*(endpoint.stop(0.5) for endpoint in self._endpoints))
        if self._http is not None:
            await self._http.stop()
        await self.front.drain(1.0)
        self.loop.stop()
        self._thread.join()
        self.front.matchers.close()
        self.link.close()
        if self._fleet is not None:
            self._fleet.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)  # it may wait for the collector

    def reload(self) -> None:
        """Reads tokens and the allow-list of workers again. A file that cannot be read leaves them as they were."""
        try:
            self._tokens.reload()
            self.link.reload()
            if self._fleet is not None:
                self._fleet.reload()
        except StartError as error:
            log.error("%s; what was read before goes on to hold", error)
        else:
            log.info("tokens and keys were read again")

    @property
    def address(self) -> str:
        """Where clients are served."""
        return self._endpoints[0].address if self._fleet is None else self._fleet.address

    @property
    def admin_address(self) -> str:
        """Where administrators are."""
        return self._endpoints[-1].address if len(self._endpoints) > 1 else self.address

    @property
    def http_address(self) -> str | None:
        """Where browsers are."""
        return self._http.address if self._http is not None else None

    def _listen(self, config: Config) -> None:
        credentials = server_credentials(config.tls) if config.tls else None
        self._tokens = tokens = Tokens(config.token_file, config.admin_token_file)
        self._traces, traced = trace(self.front, config.traces)
        if config.frontends:  # they keep the door, and hand on what only this process can answer
            self._fleet = Fleet(config, self.front.model.vocab_size, self.loop.post, self.failed.set)
            self._endpoints.append(Endpoint(self._fleet.inner, tokens, None))
        else:
            self._endpoints.append(Endpoint(config.listen, tokens, credentials, traced))
        if config.admin_listen is not None:  # without tokens of its own it is local, and whoever gets there may call it
            own = tokens if config.admin_token_file else Tokens()
            self._endpoints.append(Endpoint(config.admin_listen, own, credentials))
        if config.http is not None:
            from octavo_scheduler.web.endpoint import HttpEndpoint  # a while, for those alone who ask for it

            self._http = HttpEndpoint(config.http, tokens, config.tls)
            # else that is the only door to it
            self._serves_admin_by_http = config.admin_listen is None or config.admin_token_file is not None

    def _serve(self, endpoint: Endpoint) -> list[str]:
        """Adds the services of an endpoint; their names."""
        services = [HEALTH]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, endpoint.server)
        if endpoint is self._endpoints[0]:
            services += self._clients.serve(endpoint.server)
        if endpoint is self._endpoints[-1]:
            services.append(ADMIN.full_name)
            admin_pb2_grpc.add_AdminServiceServicer_to_server(self._admin, endpoint.server)
        return services

    def _deliver(self, outputs: list[Output]) -> None:
        """Called by the loop's thread, once a turn, where there are several fronts."""
        if self.front.live:
            self.front.deliver(outputs)
        if self._fleet is not None:
            self._fleet.deliver(outputs)

    def _release(self) -> None:
        """What was taken before the start failed."""
        for endpoint in self._endpoints:
            endpoint.release()
        if self._fleet is not None:
            self._fleet.close()
        self.link.close()
        if self._recorder is not None:
            self._recorder.discard()

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
        for service in (INFERENCE, VLLM, KSERVE, ADMIN):
            await self._health.set(service.full_name, statuses.SERVING if is_ready else statuses.NOT_SERVING)


def _recorder(config: Config, link: RouterLink) -> Recorder | None:
    if config.record is None:
        return None
    try:
        return Recorder(config.settings, config.record, has_tokens=config.record_tokens)
    except OSError as error:
        link.close()
        raise StartError(f"cannot record to {config.record}: {error.strerror}") from error
