"""A scheduler and its workers as processes, watched."""

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tests.patience import PATIENCE
from tests.processes import module

GONE = re.compile(r"worker (\S+) is gone: (.*)")
POOL = ("--dtype=float32", "--page-size=16", "--pages=64", "--host-pages=32", "--threads=1", "--max-context=256")


@dataclass
class Cluster:
    """`address` for clients; workers dial `steps`, each under a name of its own."""

    model: Path
    folder: Path
    kind: str
    steps: str
    flags: tuple[str, ...] = ()
    program: tuple[str, ...] = ("octavo_scheduler",)
    """The scheduler's module, and what comes before its flags."""
    environment: dict[str, str] = field(default_factory=dict)
    """Of all processes, besides our own."""
    address: str = ""
    workers: "dict[str, subprocess.Popen[str]]" = field(default_factory=dict)
    lines: list[tuple[float, str]] = field(default_factory=list)
    """What the scheduler logs, and when."""
    scheduler: "subprocess.Popen[str] | None" = None
    num_started: int = 0
    readers: list[threading.Thread] = field(default_factory=list)

    @property
    def kill_log(self) -> Path:
        return self.folder / "kills"

    def start_scheduler(self) -> None:
        """On the same addresses, when it is not the first one."""
        listen = self.address or "127.0.0.1:0"
        flags = (f"--model={self.model}", f"--listen={listen}", f"--workers={self.steps}", *self.flags)
        command = module(*self.program, *flags)
        self.scheduler = process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1, env=self._environment()
        )
        assert process.stdout is not None
        match = re.search(r"on ([\d.]+:\d+)", process.stdout.readline())
        assert match is not None
        self.address = match[1]
        for act, stream in ((self._read, process.stderr), (self._drain, process.stdout)):
            self.readers.append(threading.Thread(target=act, args=(stream,), daemon=True))
            self.readers[-1].start()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def _read(self, stream: TextIO) -> None:
        with stream:
            for line in stream:
                self.lines.append((time.monotonic(), line.rstrip()))

    @staticmethod
    def _drain(stream: TextIO) -> None:
        with stream:
            for _ in stream:
                pass

    def start_worker(self, phase: str = "never", after: int = 1, *, steps: str | None = None) -> str:
        """Its name; it has joined when this returns."""
        self.num_started += 1
        name = f"w{self.num_started}"
        flags = [f"--model={self.model}", f"--scheduler={steps or self.steps}", f"--worker-id={name}"]
        own = [] if self.kind == "paper" else list(POOL)
        command = module("tests.faults.worker", self.kind, phase, str(after), str(self.kill_log), *flags, *own)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self._environment()
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "joined" in line, f"{name} did not join: {line!r}"
        self.workers[name] = process
        return name

    def stop_worker(self, name: str) -> None:
        """Kill one."""
        finish(self.workers.pop(name))

    def reap(self) -> list[str]:
        """Names of workers that have ended since this was asked last."""
        ended = [name for name, process in self.workers.items() if process.poll() is not None]
        for name in ended:
            finish(self.workers.pop(name))
        return ended

    def gone(self, name: str, since: float, seconds: float = PATIENCE) -> tuple[float, str] | None:
        """When the scheduler noticed that a worker is gone, in seconds since `since`, and why."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for at, line in list(self.lines):
                if (match := GONE.search(line)) and match[1] == name and at >= since:
                    return at - since, match[2]
            time.sleep(0.005)
        return None

    def kills(self) -> list[tuple[float, str, str]]:
        """(moment, worker, phase) of all that killed themselves."""
        if not self.kill_log.exists():
            return []
        lines = [line.split(" ", 2) for line in self.kill_log.read_text().splitlines()]
        return [(float(at), name, phase) for at, name, phase in lines]

    def stop(self) -> None:
        """End all that is left."""
        for process in [*self.workers.values(), *([self.scheduler] if self.scheduler else [])]:
            finish(process)
        for thread in self.readers:
            thread.join()


def finish(process: "subprocess.Popen[str]") -> None:
    """End a process, if it has not, and what was read of it."""
    process.kill()
    process.wait()
    if process.stderr is None and process.stdout is not None:  # a worker's; the scheduler's are read to their end
        process.stdout.close()


@contextmanager
def cluster(
    model: Path,
    folder: Path,
    kind: str,
    *flags: str,
    steps: str | None = None,
    program: tuple[str, ...] = Cluster.program,
    environment: dict[str, str] | None = None,
) -> Iterator[Cluster]:
    """A scheduler without workers."""
    made = Cluster(model, folder, kind, steps or f"ipc://{folder}/steps", flags, program, environment or {})
    made.start_scheduler()
    try:
        yield made
    finally:
        made.stop()
        for file in folder.glob("steps*"):
            os.unlink(file)
