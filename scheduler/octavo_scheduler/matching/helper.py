"""A helper process as its scheduler sees it: it is asked, answers in time, or is killed and started again."""

import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from octavo_scheduler import limits
from octavo_scheduler.matching.frames import Line
from octavo_scheduler.model import ServedModel


class HelperLost(Exception):
    """The process died, or did not answer in time and was killed. The next one that is asked knows nothing."""


class Helper:
    """One process, started when it is asked first. Used by one thread at a time, except `close`."""

    def __init__(self, model: ServedModel) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._model = model
        self._line: Line | None = None
        self._is_closed = False

    def ask(self, head: dict[str, Any], seconds: float) -> tuple[dict[str, Any], bytes]:
        """Its answer. Raises HelperLost."""
        try:
            if self._is_closed:
                raise EOFError("closed for good")
            line = self._line or self._start()
            line.send(head, seconds=seconds)
            return line.receive(seconds)
        except (EOFError, OSError, ValueError) as error:
            self._kill()
            raise HelperLost(str(error) or type(error).__name__) from error

    def bury(self) -> None:
        """Where nothing is lost with it: a process that has died since it was asked last is replaced by the next one."""
        if self.process is not None and self.process.poll() is not None:
            self._kill()

    def _start(self) -> Line:
        """Hands over the vocabulary."""
        model = self._model
        own, other = socket.socketpair()
        self._line = line = Line(own)
        with other:
            command = [sys.executable, "-m", "octavo_scheduler.matching", str(other.fileno())]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[other.fileno()])
        head = {"vocab_size": model.vocab_size, "end_token_ids": sorted(model.end_token_ids)}
        line.send(head, model.vocabulary.tokenizer.to_str().encode(), limits.HELPER_START_SECONDS)
        line.receive(limits.HELPER_START_SECONDS)
        return line

    def close(self) -> None:
        """Kills it for good. Whoever waits for its answer gets HelperLost."""
        self._is_closed = True
        self._kill()

    def _kill(self) -> None:
        line, self._line = self._line, None
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
        if line is not None:
            with suppress(OSError):
                line.shutdown()
            line.close()
