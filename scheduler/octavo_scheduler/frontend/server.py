"""One front process: what its scheduler would do for clients, and the way to the core."""

import asyncio
import logging

from octavo_scheduler import report
from octavo_scheduler.access import server_credentials
from octavo_scheduler.endpoint import Endpoint
from octavo_scheduler.errors import StartError
from octavo_scheduler.front import Front
from octavo_scheduler.frontend.config import FrontendConfig
from octavo_scheduler.frontend.names import NamesInterceptor
from octavo_scheduler.frontend.relay import RelayInterceptor, channel
from octavo_scheduler.frontend.uplink import Uplink
from octavo_scheduler.frontend.wire import MARK, Said
from octavo_scheduler.loop import Command
from octavo_scheduler.model import ServedModel
from octavo_scheduler.roles import Tokens
from octavo_scheduler.services import ClientServices, trace

log = logging.getLogger("octavo.scheduler")

TALLY_SECONDS = 1.0


class _NoCore:
    """Questions about the core are relayed to where it is (`relay.HERE` leaves them out)."""

    def post(self, command: Command) -> None:
        raise AssertionError("a front process was asked what only the scheduler can say")


class Frontend:
    """Made inside a running event loop. Raises StartError when it cannot listen or a key cannot be read."""

    def __init__(self, config: FrontendConfig, model: ServedModel) -> None:
        self._stay = config.stay
        self._tokens = tokens = Tokens(config.token_file, config.admin_token_file)
        self.uplink = Uplink(config.steps, config.stay, config.number, lambda outputs: self.front.deliver(outputs))
        self.front = Front(model, self.uplink.post, config.stay + MARK)
        self.front.kept.on_forget = self.uplink.free
        self._traces, traced = trace(self.front, config.traces)
        self._inner = channel(config.inner)
        self._siblings = [channel(address) for address in config.siblings]
        names = NamesInterceptor(config.number, self.uplink, self.front.kept, self._siblings)
        handed_on = NamesInterceptor(config.number, self.uplink, self.front.kept)
        relay = RelayInterceptor(self._inner, self._siblings)
        credentials = server_credentials(config.tls) if config.tls else None
        self._endpoints = [
            Endpoint(config.siblings[config.number], tokens, None, [*traced, handed_on]),
            Endpoint(config.listen, tokens, credentials, [*traced, names, relay], is_shared=True),
        ]
        self._telling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        services = ClientServices(self.front, _NoCore())
        for endpoint in self._endpoints:
            await endpoint.start(services.serve(endpoint.server))
        self._telling = asyncio.create_task(self._tell())
        self.uplink.tell(Said(stay=self._stay, is_listening=True))

    async def stop(self, grace: float) -> None:
        """Refuses new requests, lets running ones end within `grace` seconds. May be called again while that takes long."""
        await self.front.drain(grace)
        await asyncio.gather(*(endpoint.stop(0.5) for endpoint in self._endpoints))
        await self.front.drain(1.0)
        self.front.matchers.close()
        if self._telling is not None:
            self._telling.cancel()
        self._tell_tally()
        self.uplink.close()
        for each in (self._inner, *self._siblings):
            await each.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)

    def reload(self) -> None:
        """Reads tokens again. A file that cannot be read leaves them as they were."""
        try:
            self._tokens.reload()
        except StartError as error:
            log.error("%s; what was read before goes on to hold", error)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TALLY_SECONDS)
            self._tell_tally()

    def _tell_tally(self) -> None:
        """What its requests met with; and that it is well."""
        self.uplink.tell(Said(stay=self._stay, service=report.service(self.front.tally)))
