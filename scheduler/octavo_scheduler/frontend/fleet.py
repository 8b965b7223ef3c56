"""The front processes of a scheduler: started, watched, started again when one ends unasked, ended with the scheduler."""

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from octavo_scheduler.config import Config
from octavo_scheduler.core.events import Output
from octavo_scheduler.errors import StartError
from octavo_scheduler.frontend.config import FrontendConfig, inner, steps
from octavo_scheduler.frontend.hub import Hub
from octavo_scheduler.frontend.port import SharedPort
from octavo_scheduler.link import RouterLink
from octavo_scheduler.loop import Command

log = logging.getLogger("octavo.scheduler")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 10.0
"""Before a process is started again; twice as long each time, as long as they end before they have lived for so long."""
START_SECONDS = 120.0
CUT_SECONDS = 3.0
"""For a process that was told to end at once."""
MOST_PENDING = 1000
"""Messages that a front process has not taken; then it is taken for stuck."""
LONGEST_FOLDER = 80
"""Bytes, so that sockets in it have room for their names."""


class Fleet:
    """Made inside a running event loop. Raises StartError when the address is taken."""

    def __init__(
        self, config: Config, vocab_size: int, post: Callable[[Command], None], on_failure: Callable[[], object]
    ) -> None:
        """`post`: the loop's. `on_failure` is called when nothing can be said to front processes any more."""
        self.num_lost = 0
        """Processes that ended unasked."""
        self._config = config
        self._port = SharedPort(config.listen)
        self._folder = _private_folder()
        self._lifeline = os.pipe()
        self._event_loop = asyncio.get_running_loop()
        self._link = RouterLink(steps(self._folder), most_pending=MOST_PENDING)
        self.hub = Hub(self._link, post, vocab_size, self._from_hub(self._listens), self._from_hub(self._give_up))
        self._thread = threading.Thread(target=self._run_hub, name="hub", daemon=True)
        self._on_failure = on_failure
        self._thread.start()
        self._is_stopping = False
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        """By stay."""
        self._listening = {_stay(number, 0): asyncio.Event() for number in range(config.frontends)}
        """The first process of each number: the start waits for these."""
        self._keeping: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """Where clients are served."""
        return self._port.address

    @property
    def inner(self) -> str:
        """Where the scheduler answers what front processes cannot."""
        return inner(self._folder)

    def deliver(self, outputs: list[Output]) -> None:
        """Called by the loop's thread, once a turn."""
        self.hub.deliver(outputs)

    async def start(self) -> None:
        """Returns when all of them listen. Raises StartError when one cannot."""
        numbers = range(self._config.frontends)
        self._keeping = [asyncio.create_task(self._keep(number)) for number in numbers]
        listening = asyncio.gather(*(event.wait() for event in self._listening.values()))
        awaited: list[asyncio.Future[Any]] = [listening, *self._keeping]
        done, _ = await asyncio.wait(awaited, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
        if not done:
            raise StartError(f"the front processes do not listen after {START_SECONDS:g} s")

    def reload(self) -> None:
        """Has all of them read tokens again."""
        self._signal(signal.SIGHUP)

    async def stop(self, grace: float) -> None:
        """Lets streams end within `grace` seconds."""
        self._is_stopping = True
        self._signal(signal.SIGTERM)
        for seconds, number in ((grace, signal.SIGTERM), (CUT_SECONDS, signal.SIGKILL)):
            if self._keeping:
                await asyncio.wait(self._keeping, timeout=seconds)
            self._signal(number)
        await asyncio.gather(*self._keeping, return_exceptions=True)

    def close(self) -> None:
        """When the loop has ended."""
        self.hub.stop()
        self._thread.join()
        self._link.close()
        for end in self._lifeline:
            os.close(end)
        self._port.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run_hub(self) -> None:
        try:
            self.hub.run()
        except Exception:
            log.exception("what front processes say and are told goes nowhere")
            self._event_loop.call_soon_threadsafe(self._on_failure)

    async def _keep(self, number: int) -> None:
        """Has one front process of this number at any time. Raises StartError when the first one never listens."""
        pause = FIRST_PAUSE_SECONDS
        for generation in count():
            stay = _stay(number, generation)
            began = time.monotonic()
            code = await self._run(number, stay)
            self.hub.end(stay)
            if self._is_stopping:
                return
            if generation == 0 and not self._listening[stay].is_set():
                raise StartError(f"a front process ended with exit code {code} before it could listen")
            self.num_lost += 1
            log.error("front process %d ended (exit code %s); it is started again", number, code)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            if time.monotonic() - began > LONGEST_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            if self._is_stopping:
                return

    async def _run(self, number: int, stay: str) -> int:
        """One process, from start to end. Its exit code."""
        self.hub.open(stay, number)
        flags = FrontendConfig.of(
            self._config,
            listen=self.address,
            folder=self._folder,
            number=number,
            stay=stay,
            lifeline=self._lifeline[0],
        ).arguments
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "octavo_scheduler.frontend", *flags),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[self._lifeline[0]],
        )
        self._processes[stay] = process
        try:
            return await process.wait()
        finally:
            del self._processes[stay]

    def _from_hub(self, heard: Callable[..., None]) -> Callable[..., object]:
        return lambda *said: self._event_loop.call_soon_threadsafe(heard, *said)

    def _listens(self, stay: str) -> None:
        if stay in self._listening:
            self._listening[stay].set()

    def _give_up(self, stay: str, why: str) -> None:
        log.error("front process %s is given up: %s", stay, why)
        if (process := self._processes.get(stay)) is not None:
            with suppress(ProcessLookupError):
                process.kill()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)


def _stay(number: int, generation: int) -> str:
    """What one process is called, from its start to its end."""
    return f"f{number}.{generation}"


def _private_folder() -> Path:
    """For this user alone."""
    is_short = len(os.fsencode(tempfile.gettempdir())) <= LONGEST_FOLDER
    return Path(tempfile.mkdtemp(prefix="octavo-", dir=None if is_short else "/tmp"))
