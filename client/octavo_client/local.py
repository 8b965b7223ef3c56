"""A scheduler and its workers on this machine, as child processes of this one.

    this process ──lifeline──► scheduler ◄──ipc── worker 0 … N-1
         └────── gRPC, unix socket ──┘

Sockets and logs live in a temporary folder that only this user can enter and that close() removes.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from octavo_client.addresses import is_local
from octavo_client.children import CHILD, Child, Lifeline
from octavo_client.errors import ConfigError, StartFailed

READY_LINE = re.compile(r"^octavo scheduler: serving (?P<name>.+) on (?P<address>\S+), workers dial ", re.MULTILINE)
JOINED_LINE = re.compile(r"^octavo worker: .+ joined [^,\n]+(?:, (?P<pool>.+))?$", re.MULTILINE)
SECONDS_BETWEEN_LOOKS = 0.02
SECONDS_TO_END = 35.0  # more than the scheduler gives running streams to end
LONGEST_SOCKET_PATH = 100  # the system allows 107 bytes


@dataclass(frozen=True)
class Programs:
    """The command lines that start a scheduler and a worker."""

    scheduler: Sequence[str] = (sys.executable, "-m", "octavo_scheduler")
    worker: Sequence[str] = (sys.executable, "-m", "octavo_worker")


class LocalServer:
    """Starts a scheduler and `workers` workers for `model`, a folder or GGUF file, and ends them again.

    `listen` is a loopback address or "unix:PATH"; without it a unix socket in the runtime folder is used. The flags are
    those of the two programs. With `verbose` the children write to this process's stderr, else to files that are quoted
    when a child fails. After start(), `address` and `model_name` say where which model is served.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        workers: int = 1,
        listen: str | None = None,
        scheduler_flags: Sequence[str] = (),
        worker_flags: Sequence[str] = (),
        verbose: bool = False,
        start_timeout: float = 600.0,
        programs: Programs | None = None,
    ) -> None:
        if workers < 1:
            raise ConfigError(f"The number of workers must be at least 1, not {workers}.")
        if listen is not None and not is_local(listen):
            raise ConfigError(
                f"{listen} is not an address of this machine only: use 127.0.0.1:PORT or unix:PATH here, or start "
                "`octavo scheduler` with --tls-cert, --tls-key and --token-file and `octavo worker` with CURVE keys."
            )
        self.address = ""
        self.model_name = ""
        self.pool = ""
        """What each worker says of its pages."""
        self._model = str(model)
        self._num_workers = workers
        self._listen = listen
        self._scheduler_flags = scheduler_flags
        self._worker_flags = worker_flags
        self._verbose = verbose
        self._start_timeout = start_timeout
        self._programs = programs or Programs()
        self._folder: Path | None = None
        self._lifeline: Lifeline | None = None
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def children(self) -> tuple[Child, ...]:
        """The scheduler first, then the workers."""
        return tuple(self._children)

    def start(self, stop: threading.Event | None = None) -> None:
        """Returns when all workers have joined and the server answers, or early when `stop` gets set.

        Raises StartFailed, which quotes the child that ended before that, after ending the others.
        """
        if CHILD in os.environ:
            raise StartFailed(
                "A worker has imported this program, to find its attention class, and the program starts a server when it "
                "is imported: put that under `if __name__ == '__main__':`."
            )
        atexit.register(self.close)
        try:
            self._launch()
            self._wait_until_serving(stop or threading.Event())
        except BaseException:
            self.close()
            raise

    def close(self, grace: float = SECONDS_TO_END) -> None:
        """Ends the scheduler, which finishes what it began within `grace` seconds, then the workers. May be called twice."""
        for child in self._children:
            child.end(grace)
        self._children = []
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        atexit.unregister(self.close)

    def _launch(self) -> None:
        self._folder = _make_runtime_folder()
        self._lifeline = Lifeline()
        link = f"ipc://{self._folder}/link.sock"
        listen = self._listen or f"unix:{self._folder}/grpc.sock"
        scheduler = [*self._programs.scheduler, "--model", self._model, "--listen", listen, "--workers", link]
        self._spawn("scheduler", [*scheduler, *self._scheduler_flags])
        for number in range(self._num_workers):
            worker = [*self._programs.worker, "--model", self._model, "--scheduler", link]
            self._spawn(f"worker-{number}", [*worker, "--worker-id", f"worker-{number}", *self._worker_flags])

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        assert self._folder is not None
        assert self._lifeline is not None
        child = Child(name, command, folder=self._folder, lifeline=self._lifeline, verbose=self._verbose)
        self._children.append(child)

    def _wait_until_serving(self, stop: threading.Event) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not stop.is_set() and not self._is_serving():
            for child in self._children:
                if child.exit_code() is not None:
                    raise child.failure()
            if time.monotonic() > deadline:
                lines = tuple(line for child in self._children for line in child.last_words())
                raise StartFailed(f"Not all workers were ready within {self._start_timeout:g} seconds.", lines=lines)
            stop.wait(SECONDS_BETWEEN_LOOKS)

    def _is_serving(self) -> bool:
        scheduler, *workers = self._children
        ready = READY_LINE.search(scheduler.printed())
        joined = [match for worker in workers if (match := JOINED_LINE.search(worker.printed()))]
        if ready is None or len(joined) < len(workers):
            return False
        self.model_name, self.address = ready["name"], ready["address"]
        self.pool = joined[0]["pool"] or ""
        from octavo_client.health import answers  # gRPC comes in while the children are loading: it takes a while

        return answers(self.address)


def _make_runtime_folder() -> Path:
    # mkdtemp makes it with mode 0700. A long TMPDIR would not leave room for the name of a socket.
    longest = len(tempfile.gettempdir()) + len("/octavo-xxxxxxxx/link.sock")
    return Path(tempfile.mkdtemp(prefix="octavo-", dir=None if longest <= LONGEST_SOCKET_PATH else "/tmp"))
