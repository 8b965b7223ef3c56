"""What a front process and its scheduler say to each other, gathered: one message for each round of the event loop."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import sha256

from octavo_scheduler.commands import FrontCommand, Submit
from octavo_scheduler.core.events import Output
from octavo_scheduler.frontend.link import FrontLink
from octavo_scheduler.frontend.wire import NAME_BYTES, Said, decode_news, encode_said
from octavo_scheduler.kept import Key
from octavo_scheduler.wire import BadMessage

log = logging.getLogger("octavo.scheduler")

MOST_TOKENS = 1 << 22
"""Of the prompts in one message, unless one alone has more: a token takes three bytes at most, a message of gRPC fewer."""


class Uplink:
    """`deliver` gets all outputs of a turn. All but `post` is called in the event loop."""

    def __init__(self, address: str, stay: str, number: int, deliver: Callable[[list[Output]], None]) -> None:
        self._stay = stay
        self._number = number
        self._deliver = deliver
        self._commands: deque[FrontCommand] = deque()
        self._freed: list[bytes] = []
        self._claims: dict[bytes, list[asyncio.Future[int]]] = {}
        self._new_claims: list[bytes] = []
        self.failed = asyncio.Event()
        """Set when something came that cannot be read: what it said is lost."""
        self._is_due = False
        self._thread = threading.get_ident()
        self._event_loop = asyncio.get_running_loop()
        self._link = FrontLink(address, self._receive)

    def post(self, command: FrontCommand) -> None:
        """Has the scheduler's loop run it. May be called by any thread."""
        self._commands.append(command)
        if threading.get_ident() == self._thread:
            self._soon()
        else:
            self._event_loop.call_soon_threadsafe(self._soon)

    async def owner(self, key: Key) -> int:
        """Number of the front process that answers under this name: of this one, if no other does."""
        name = _name(key)
        if name not in self._claims:
            self._claims[name] = []
            self._new_claims.append(name)
            self._soon()
        answer: asyncio.Future[int] = self._event_loop.create_future()
        self._claims[name].append(answer)
        return await answer

    def free(self, key: Key) -> None:
        """This front knows the name no longer."""
        self._free(_name(key))

    def close(self) -> None:
        """Sends what is still to be said."""
        self._flush()
        self._link.close()

    def tell(self, said: Said) -> None:
        """At once."""
        self._link.send(encode_said(said))

    def _free(self, name: bytes) -> None:
        self._freed.append(name)
        self._soon()

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._event_loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        freed, self._freed = self._freed, []
        claimed, self._new_claims = self._new_claims, []
        batches = self._batches()
        self.tell(Said(stay=self._stay, freed=freed, claimed=claimed, commands=next(batches)))
        for batch in batches:
            self.tell(Said(stay=self._stay, commands=batch))

    def _batches(self) -> Iterator[list[FrontCommand]]:
        """All commands, in order; the first batch may be empty."""
        batch: list[FrontCommand] = []
        size = 0
        while self._commands:
            command = self._commands.popleft()
            batch.append(command)
            if isinstance(command, Submit):
                size += len(command.spec.prompt) + sum(map(len, command.spec.held))
            if size > MOST_TOKENS:
                yield batch
                batch, size = [], 0
        yield batch

    def _receive(self, frame: bytes) -> None:
        try:
            news = decode_news(frame)
        except BadMessage as error:
            log.error("the scheduler says what cannot be read: %s", error)
            self.failed.set()
            return
        for name, number in news.owners:
            waiting = [answer for answer in self._claims.pop(name, ()) if not answer.done()]
            for answer in waiting:
                answer.set_result(number)
            if not waiting and number == self._number:  # whoever asked has left
                self._free(name)
        if news.outputs:
            self._deliver(list(news.outputs))


def _name(key: Key) -> bytes:
    """Of a tenant's request, short: it is compared and nothing else."""
    return sha256("\0".join(key).encode()).digest()[:NAME_BYTES]
