"""Which rank of its group a process is; and rank 0's children, where nobody else started the other ranks.

torchrun, and whoever else starts all ranks, says so in the environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Else
this process is rank 0 and starts the others with the same flags. They hold the read end of a pipe, their lifeline, and end
at once when it does; rank 0 ends at once when a child does. That also frees who waits for a lost rank in an exchange.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from octavo_worker.config import WorkerConfig
from octavo_worker.errors import ConfigError
from octavo_worker.flags import is_local

LOOPBACK = "127.0.0.1"
SECONDS_TO_END = 20.0
LOST = 1
"""Exit code of a rank whose group has lost another."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Rank `rank` of `size`, and where the group meets."""

    rank: int
    size: int
    host: str
    port: int
    is_served: bool = False  # whoever started all ranks has a store of keys for them to meet at
    attempt: str = "0"  # which outlives the ranks
    listener: socket.socket | None = None  # of rank 0, where it has to keep that store itself

    @property
    def is_first(self) -> bool:
        """Whether it speaks to the scheduler."""
        return self.rank == 0


def take_seat(environment: Mapping[str, str], size: int, arguments: Sequence[str]) -> tuple[Seat, "Children | None"]:
    """This process's seat, and the other ranks if it had to start them. Raises ConfigError."""
    seat = seat_from(environment, size)
    if seat is None:
        listener = listen()
        port = listener.getsockname()[1]
        return Seat(0, size, LOOPBACK, port, listener=listener), Children(arguments, size, port, end_at_once)
    if seat.is_first and not seat.is_served:
        seat = replace(seat, listener=listen(seat.port))
    return seat, None


def seat_from(environment: Mapping[str, str], size: int) -> Seat | None:
    """What the environment says; None where it says nothing. Raises ConfigError."""
    if "RANK" not in environment:
        return None
    try:
        rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"RANK is set, so WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be, to numbers: {error}"
        ) from None
    if world != size:
        raise ConfigError(f"--tensor-parallel-size {size} takes as many ranks, and WORLD_SIZE is {world}")
    is_served = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    here = int(environment.get("LOCAL_WORLD_SIZE", world)) == world
    if not here or not (is_served or is_local(f"tcp://{host}:{port}")):
        raise ConfigError("the ranks of a group run on one machine: what they send to each other is not encrypted")
    return Seat(rank, size, host, port, is_served, environment.get("TORCHELASTIC_RESTART_COUNT", "0"))


def listen(port: int = 0) -> socket.socket:
    """A socket that this machine alone can reach; 0 is any free port. Raises ConfigError."""
    listener = socket.socket()
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        raise ConfigError(f"MASTER_PORT {port} cannot be listened on: {error.strerror}") from error
    listener.listen()
    return listener


class Children:
    """Ranks 1 to size - 1, started with these arguments of the worker's.

    `lose(sentence, exit code)` is called, in another thread, when one ends before `is_ending` is set.
    """

    def __init__(self, arguments: Sequence[str], size: int, port: int, lose: Callable[[str, int], None]) -> None:
        self.is_ending = False
        lifeline, self.lifeline = os.pipe()  # the second end is this process's alone: it closes whatever this dies of
        command = [sys.executable, "-m", "octavo_worker", *arguments, "--lifeline", str(lifeline)]
        where = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "False"}
        where |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(size))
        self.processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **where, "RANK": str(rank)},
                pass_fds=[lifeline],
                start_new_session=True,  # a Ctrl-C in the terminal is for rank 0
            )
            for rank in range(1, size)
        ]
        os.close(lifeline)
        self.watchers = [
            threading.Thread(target=self.watch, args=(rank, process, lose), daemon=True)
            for rank, process in enumerate(self.processes, 1)
        ]
        for watcher in self.watchers:
            watcher.start()

    def watch(self, rank: int, process: "subprocess.Popen[bytes]", lose: Callable[[str, int], None]) -> None:
        code = process.wait()
        if not self.is_ending:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            lose(f"octavo worker: rank {rank} of this group {how}; the group ends with it", code if code > 0 else LOST)

    def wait(self) -> None:
        """Until they have ended, as they have been told."""
        for process in self.processes:
            try:
                process.wait(SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()


def end_with(lifeline: int | None) -> list[threading.Thread]:
    """End this process when its lifeline, if it has one, ends; who watches that. Rank 0 watches its own while it waits for
    plans."""

    def watch(descriptor: int) -> None:
        while os.read(descriptor, 1):
            pass
        os._exit(0)

    watchers = [] if lifeline is None else [threading.Thread(target=watch, args=(lifeline,), daemon=True)]
    for watcher in watchers:
        watcher.start()
    return watchers


def end_at_once(words: str, code: int) -> None:
    """This process, or torch's threads in it, may be waiting for a rank that is gone: nothing less would end it."""
    with suppress(OSError):  # nobody reads it any more
        sys.stdout.flush()
        print(words, end="\n" if words else "", file=sys.stderr, flush=True)
    os._exit(code)


def per_rank(config: WorkerConfig, rank: int) -> WorkerConfig:
    """The configuration of a rank. On CPUs all of them share one machine's cores and its memory; of GPUs each has its own:
    the first ones, or those from the one named."""
    if config.device != "cpu":
        name, _, first = config.device.partition(":")
        return replace(config, device=f"{name}:{int(first or 0) + rank}")
    size = config.tensor_parallel_size
    threads = config.threads or max(1, (os.cpu_count() or 1) // size)
    return replace(config, threads=threads, kv_memory_share=config.kv_memory_share / size)
