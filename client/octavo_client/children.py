"""One child process of this machine: started with a lifeline, watched, ended in order.

The lifeline is the read end of a pipe whose write end only the parent holds. When the parent ends, by any cause and
SIGKILL too, the pipe reaches its end and the child ends itself.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from octavo_client.errors import StartFailed

QUOTED_LINES = 5
CHILD = "OCTAVO_CHILD"
"""Environment variable by which children know that they are."""


class Lifeline:
    """The pipe that ties children to this process. Children get `read_fd`; close() tells all of them to end."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()  # neither is inherited unless passed on by number

    def close(self) -> None:
        """Closes both ends."""
        os.close(self.read_fd)
        os.close(self._write_fd)


class Child:
    """A running child. Its stdout goes to FOLDER/NAME.out, its stderr to FOLDER/NAME.err or, if verbose, to ours."""

    def __init__(self, name: str, command: Sequence[str], *, folder: Path, lifeline: Lifeline, verbose: bool) -> None:
        self.name = name
        self._out = folder / f"{name}.out"
        self._err = None if verbose else folder / f"{name}.err"
        with open(self._out, "wb") as out, open(self._err or os.devnull, "wb") as err:
            try:
                self._process = subprocess.Popen(
                    [*command, "--lifeline", str(lifeline.read_fd)],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=None if verbose else err,
                    pass_fds=(lifeline.read_fd,),
                    start_new_session=True,  # a Ctrl-C in the terminal is for the parent, which then ends its children
                    env={**os.environ, "PYTHONUNBUFFERED": "1", "GRPC_VERBOSITY": "NONE", CHILD: "1"},
                )
            except OSError as error:
                raise StartFailed(f"The {name} cannot be started: {command[0]}: {error.strerror}.") from error

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def printed(self) -> str:
        """Returns what it has printed to stdout so far."""
        return self._out.read_text(errors="replace")

    def exit_code(self) -> int | None:
        """Returns its exit code, negative for a signal, or None while it runs."""
        return self._process.poll()

    def failure(self) -> StartFailed:
        """Returns the error that says how this child ended, in its own last words."""
        lines = self.last_words()
        code = self.exit_code() or 0
        ending = f"The {self.name} was killed by {signal.Signals(-code).name}" if code < 0 else self._ended_with(code)
        if self._err is None:
            return StartFailed(ending)
        sentences = [line for line in lines if line.startswith("octavo ")] or lines[-1:] or ["it printed nothing"]
        return StartFailed(f"{ending}: {' / '.join(sentences)}", lines=lines)

    def _ended_with(self, code: int) -> str:
        return f"The {self.name} ended with exit code {code}" + (" (see above)" if self._err is None else "")

    def kill(self) -> None:
        """Ends it at once. Does nothing to a child that has ended."""
        self._process.kill()

    def last_words(self) -> tuple[str, ...]:
        """Returns the last lines it wrote to stderr, if that is kept in a file."""
        return () if self._err is None else _last_lines(self._err.read_bytes().decode(errors="replace"))

    def end(self, grace: float) -> None:
        """Asks it to end, waits up to `grace` seconds, then kills it. Does nothing to a child that has ended."""
        self._process.terminate()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _last_lines(text: str) -> tuple[str, ...]:
    # A progress bar redraws its line with carriage returns: only the last state counts.
    lines = (line.rstrip().rpartition("\r")[2].strip() for line in text.split("\n"))
    return tuple(line for line in lines if line)[-QUOTED_LINES:]
