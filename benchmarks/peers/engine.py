"""The benchmark's side of the conversation with one engine (see `runners.protocol`)."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.store import ROOT
from benchmarks.workload import Work

MOST_SECONDS = 900.0
SECONDS_TO_END = 40.0


class EngineFailed(Exception):
    """An engine that ended, or took too long; the sentence quotes its last line."""


class Engine:
    """A running engine. Use it as a context manager: it is ended, and its process group killed, whatever happens."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """Waits until it can take work. What it prints besides answers goes to `log`. Raises EngineFailed."""
        self._log = log
        self._rest = b""
        started = time.perf_counter()
        with log.open("wb") as file:
            self._process = start(command, file.fileno(), stdin=subprocess.PIPE)
        try:
            self.about: dict[str, str] = self._answer()["about"]
        except BaseException:
            self.close(0.0)
            raise
        self.ready_seconds = time.perf_counter() - started

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(0.0 if error else SECONDS_TO_END)

    def run(self, work: Sequence[Work]) -> tuple[float, list[list[int]]]:
        """Seconds, and the ids of all answers, which have the lengths that were asked for. Raises EngineFailed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(work).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise EngineFailed(last_line(self._log)) from error
        answer = self._answer()
        if [len(ids) for ids in answer["ids"]] != [each.num_tokens for each in work]:
            raise EngineFailed("its answers have other lengths than were asked for")
        return float(answer["seconds"]), answer["ids"]

    def close(self, grace: float = SECONDS_TO_END) -> None:
        """End it, by force after `grace` seconds. May be called twice."""
        end(self._process, grace)

    def _answer(self) -> Any:
        """The next line. Raises EngineFailed."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + MOST_SECONDS
        while b"\n" not in self._rest:
            if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise EngineFailed(f"it did not answer within {MOST_SECONDS:g} seconds")
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise EngineFailed(last_line(self._log))
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)


def start(command: Sequence[str], stderr: int, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
    """A process in a group of its own, that finds the benchmarks wherever its interpreter is.

    What this environment says about OpenMP's threads suits Octavo; others choose for themselves.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("OMP_WAIT_POLICY", None)
    return subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env=environment, cwd=ROOT, start_new_session=True
    )


def end(process: "subprocess.Popen[bytes]", grace: float) -> None:
    """No more work; then what has not ended by itself is killed, with all that is left of its group."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def run_tool(command: Sequence[str], log: Path) -> dict[str, float]:
    """The figures in the last line that a program prints. Raises EngineFailed."""
    with log.open("wb") as file:
        process = start(command, file.fileno())
    try:
        output, _ = process.communicate(timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        raise EngineFailed(f"it did not end within {MOST_SECONDS:g} seconds") from error
    if process.returncode:
        raise EngineFailed(last_line(log))
    return {name: float(value) for name, value in json.loads(output.splitlines()[-1]).items()}


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it ended without a word")
