"""Between the loop and the front processes: outputs out, commands in, by one thread.

What a front process owns is known by its *stay*, one process from its start to its end: ids of its requests begin with
it. When a stay ends its requests are aborted, and the names of its answers are anybody's.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from octavo_scheduler import report
from octavo_scheduler.commands import FrontCommand, Submit
from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Output
from octavo_scheduler.frontend.wire import MARK, News, decode_said, encode_news, stay_of
from octavo_scheduler.loop import Command, Link
from octavo_scheduler.tally import RequestTally
from octavo_scheduler.wire import BadMessage

log = logging.getLogger("octavo.scheduler")

PATIENCE_SECONDS = 1.0
SILENT_SECONDS = 10.0
"""Of a process that said it listens: its event loop says something every second, and stands still if it does not."""
Ended = str
"""A stay, in the queue."""


class Hub:
    """`run` in a thread of its own; `deliver` is called by the loop's, all else by the event loop."""

    def __init__(
        self,
        link: Link,
        post: Callable[[Command], None],
        vocab_size: int,
        on_listening: Callable[[str], object],
        on_lost: Callable[[str, str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_listening` hears of a stay whose clients may come, `on_lost` of one that has to end, and why."""
        self.num_bad = 0
        """Messages that could not be read."""
        self._link = link
        self._post = post
        self._vocab_size = vocab_size
        self._on_listening = on_listening
        self._on_lost = on_lost
        self._clock = clock
        self._last_turn = clock()
        self._heard: dict[str, float] = {}
        """When listening stays last said something."""
        self._jobs: SimpleQueue[list[Output] | Ended] = SimpleQueue()
        self._numbers: dict[str, int] = {}
        """Of the stays that have not ended."""
        self._peers: dict[str, bytes] = {}
        self._owners: dict[bytes, str] = {}
        """Stays by the names of their answers."""
        self._labels: dict[str, str] = {}
        """What clients call requests, by id; some are over. Kept by the loop's thread."""
        self._services: dict[str, Any] = {}
        self._retired = report.service(RequestTally())
        self._is_stopped = False

    def open(self, stay: str, number: int) -> None:
        """A front process is about to start."""
        self._numbers[stay] = number

    def end(self, stay: str) -> None:
        """A front process has ended."""
        self._jobs.put(stay)
        self._link.wake()

    def deliver(self, outputs: list[Output]) -> None:
        """All outputs of a turn, those of other fronts too."""
        self._jobs.put(outputs)
        self._link.wake()

    def stop(self) -> None:
        self._is_stopped = True
        self._link.wake()

    def labels(self) -> dict[str, str]:
        """What clients call the requests of all front processes, by id."""
        return dict(self._labels)

    def services(self) -> list[Any]:
        """What requests met with, as messages; those that have ended counted too."""
        return [self._retired, *dict(self._services).values()]

    def run(self) -> None:
        while not self._is_stopped:
            for peer, frame in self._link.receive(PATIENCE_SECONDS):
                self._receive(peer, frame)
            self._do_jobs()
            self._watch()

    def _watch(self) -> None:
        """If this very process was stopped for a while, nobody is blamed for it."""
        now = self._clock()
        if now - self._last_turn > SILENT_SECONDS / 2:
            self._heard = dict.fromkeys(self._heard, now)
        self._last_turn = now
        for stay in [stay for stay, heard in self._heard.items() if now - heard > SILENT_SECONDS]:
            self._lose(stay, "its event loop stands still")

    def _do_jobs(self) -> None:
        """Outputs of several turns, where the thread comes late, go out together."""
        outputs: list[Output] = []
        ended: list[str] = []
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                break
            if isinstance(job, Ended):
                ended.append(job)
            else:
                outputs += job
        by_stay: dict[str, list[Output]] = {}
        for output in outputs:
            by_stay.setdefault(stay_of(output.request), []).append(output)
        for stay, some in by_stay.items():
            self._send(stay, News(some))
        for stay in ended:
            self._bury(stay)

    def _send(self, stay: str, news: News) -> None:
        peer = self._peers.get(stay)  # nobody: outputs of the scheduler's own front, or of a stay that has ended
        if peer is not None and not self._link.send(peer, encode_news(news)):
            self._lose(stay, "it takes no messages")

    def _lose(self, stay: str, why: str) -> None:
        """It will end, and until then nothing more is said to it."""
        del self._peers[stay]
        self._numbers.pop(stay, None)
        self._heard.pop(stay, None)
        self._on_lost(stay, why)

    def _bury(self, stay: str) -> None:
        self._numbers.pop(stay, None)
        self._peers.pop(stay, None)
        self._heard.pop(stay, None)
        self._owners = {name: owner for name, owner in self._owners.items() if owner != stay}
        service = self._services.pop(stay, None)
        if service is not None:
            self._retired = report.total([self._retired, service])
        self._post(partial(_abort_all, stay))

    def _receive(self, peer: bytes, frame: bytes) -> None:
        try:
            said = decode_said(frame, self._vocab_size)
        except BadMessage as error:
            self.num_bad += 1
            for stay in [stay for stay, known in self._peers.items() if known == peer]:
                self._lose(stay, str(error))
            return
        number = self._numbers.get(said.stay)
        if number is None:
            return
        if self._peers.setdefault(said.stay, peer) != peer:  # what was said in between is lost
            self._lose(said.stay, "it dials again")
            return
        if said.is_listening:
            self._on_listening(said.stay)
        if said.is_listening or said.stay in self._heard:
            self._heard[said.stay] = self._clock()
        for name in said.freed:
            if self._owners.get(name) == said.stay:
                del self._owners[name]
        if said.claimed:
            owners = [(name, self._owners.setdefault(name, said.stay)) for name in said.claimed]
            self._send(said.stay, News(owners=[(name, self._numbers.get(owner, number)) for name, owner in owners]))
        if said.commands:
            self._post(partial(self._run, said.commands))
        if said.service is not None and report.is_sound(said.service):
            self._services[said.stay] = said.service

    def _run(self, commands: Sequence[FrontCommand], core: Core, now: float) -> list[Output]:
        """In the loop's thread."""
        outputs: list[Output] = []
        for command in commands:
            if isinstance(command, Submit):
                if command.spec.id in core.requests:
                    log.error("a front process submitted %s twice", command.spec.id)
                    continue
                self._labels[command.spec.id] = command.label
            outputs += command(core, now)
        if len(self._labels) > 2 * len(core.requests) + 64:
            self._labels = {id: label for id, label in self._labels.items() if id in core.requests}
        return outputs


def _abort_all(stay: str, core: Core, now: float) -> list[Output]:
    ids = [id for id in core.requests if id.startswith(stay + MARK)]
    return [output for id in ids for output in core.abort(id, now)]
