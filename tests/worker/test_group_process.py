"""A tensor-parallel worker as processes: how its ranks start, what they listen on, how they end."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from octavo_worker.errors import ConfigError
from octavo_worker.group.seat import Seat, seat_from

from tests.doubles.tiny_model import make_tiny_model
from tests.patience import PATIENCE
from tests.worker.plans import growth, new_slots, rows
from tests.worker.router import Router

WORKER = [sys.executable, "-m", "octavo_worker"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "octavo_worker"]


Spawn: TypeAlias = "Callable[..., subprocess.Popen[str]]"


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    made = Router(tmp_path / "step.ipc")
    yield made
    made.close()


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts one rank, or all with torchrun; kills what a test that fails leaves behind."""
    started: list[subprocess.Popen[str]] = []

    def start(command: list[str], *flags: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        words = [*command, "--threads=1", "--pages=12", "--tensor-parallel-size=2", *map(str, flags)]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(words, **pipes, env={**os.environ, **(env or {})}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def environment_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


def listens_on(pid: int) -> set[str]:
    """Addresses of TCP sockets that a process listens on, as /proc writes them: hexadecimal, and the bytes reversed."""
    own = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.exists() or each.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.add(fields[1].partition(":")[0])
    return found


def serve_a_step(router: Router) -> None:
    router.welcome()
    plan = {"new_slots": new_slots({0: [5, 6, 7]}), "growth": growth({0: [1]}), "rows": rows({0: 3})}
    router.send(plan={"step": 1, **plan})
    assert router.receive("result").result.step == 1


def test_one_hello_speaks_for_the_group_and_sigterm_ends_all_ranks_in_order(
    spawn: Spawn, router: Router, tiny: Path
) -> None:
    process = spawn(WORKER, "--model", tiny, "--scheduler", router.address, "--worker-id=w")
    serve_a_step(router)
    (other,) = children(process.pid)
    process.send_signal(signal.SIGTERM)
    router.receive("goodbye")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    assert out.count("joined") == 1
    assert not Path(f"/proc/{other}").exists()


def test_ranks_listen_to_this_machine_alone(spawn: Spawn, router: Router, tiny: Path) -> None:
    """Whatever the environment says of interfaces."""
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    environment = {"GLOO_SOCKET_IFNAME": ",".join(others[:1]), "MASTER_ADDR": "0.0.0.0"}
    process = spawn(WORKER, "--model", tiny, "--scheduler", router.address, env=environment)
    serve_a_step(router)
    assert [listens_on(pid) for pid in (process.pid, *children(process.pid))] == [{"0100007F"}, {"0100007F"}]
    process.terminate()
    process.communicate(timeout=PATIENCE)


def test_torchrun_starts_the_ranks_and_ends_them(spawn: Spawn, router: Router, tiny: Path) -> None:
    """It tells all ranks to end; then rank 0 says when, so that the step in hand is finished."""
    process = spawn(TORCHRUN, "--model", tiny, "--scheduler", router.address)
    serve_a_step(router)
    (second,) = (pid for pid in children(process.pid) if "RANK=1" in environment_of(pid))
    os.kill(second, signal.SIGTERM)
    router.send(plan={"step": 2, "rows": rows({0: 1})})
    assert router.receive("result").result.step == 2
    process.send_signal(signal.SIGTERM)
    router.receive("goodbye")
    out, _ = process.communicate(timeout=PATIENCE)
    assert out.count("joined") == 1


@pytest.mark.parametrize(
    ("shape", "flags", "sentence"),
    [
        ({"heads": 9, "kv_heads": 3}, [], "has 9 query heads, 3 KV heads and an inner width of 128"),
        ({}, ["--kernels", "abacus"], "kernels 'abacus' do not run"),
        ({}, ["--tensor-parallel-size", "0"], "--tensor-parallel-size lies between 1 and 64, not at 0"),
    ],
)
def test_what_no_rank_could_serve_is_refused_once(
    spawn: Spawn, shape: dict[str, int], flags: list[str], sentence: str, tmp_path: Path
) -> None:
    model = make_tiny_model(tmp_path, **shape)  # type: ignore[arg-type]
    process = spawn(WORKER, "--model", model, "--scheduler", "ipc://x", *flags)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1)
    assert sentence in err


def test_engine_folders_are_refused_with_what_to_serve_instead(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    process = spawn(WORKER, "--model", tmp_path, "--scheduler", "ipc://x")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "is an engine folder, whose matrices are packed whole" in err


HERE = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_a_seat_is_read_from_the_environment_of_whoever_started_all_ranks() -> None:
    assert seat_from({}, 2) is None
    assert seat_from(HERE, 2) == Seat(1, 2, "127.0.0.1", 29500)
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "3", "MASTER_ADDR": "this-machine"}
    assert seat_from({**HERE, **agent}, 2) == Seat(1, 2, "this-machine", 29500, is_served=True, attempt="3")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"WORLD_SIZE": "4"}, "--tensor-parallel-size 2 takes as many ranks, and WORLD_SIZE is 4"),
        ({"LOCAL_WORLD_SIZE": "1"}, "run on one machine: what they send to each other is not encrypted"),
        ({"MASTER_ADDR": "192.0.2.7"}, "run on one machine"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT must be, to numbers"),
    ],
)
def test_an_environment_that_does_not_fit_is_refused(changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        seat_from({**HERE, **changes}, 2)


GROUP_OF_TWO = """
import signal, sys
from datetime import timedelta
from octavo.audit import refuse_unpickling
from octavo_worker.errors import GroupLost
from octavo_worker.group import ranks as module, seat as seats
from octavo_kernels.choice import pick
import os, torch
refuse_unpickling()
module.EXCHANGE = timedelta(seconds=1)
seat, children = seats.seat_from(os.environ, 2), None
if seat.is_first:
    seat = seats.replace(seat, listener=seats.listen(seat.port))
ranks = module.Ranks(seat)
buffer, gathered = torch.full((3, 2), 1.0 + seat.rank), torch.zeros(3, 3)
ops = module.between_devices(module.replace(pick("cpu", "reference"), ranks=2), ranks.step)
ops.all_gather(None, buffer, gathered)
ops.all_reduce(None, buffer)
assert gathered.tolist() == [[1, 2, 2]] * 3 and buffer.tolist() == [[3, 3]] * 3
orders = [b"", b"short", bytes(range(256)) * 16, b"x" * 4088, b"y" * 4089, b"z" * 1_000_000]
for order in orders:
    heard = ranks.tell(order) if seat.is_first else ranks.hear()
    assert seat.is_first or heard == order
assert ranks.least(5 + seat.rank, 7 - seat.rank) == (5, 6)
ranks.agree(3, 2**62)
if not seat.is_first:
    signal.pause()  # alive, connected, and never there
try:
    ranks.agree(1, 2)
except GroupLost as loss:
    print(loss, flush=True)
    os._exit(0)
"""


def test_orders_of_any_size_and_whole_buffers_arrive_and_a_rank_that_never_comes_is_given_up() -> None:
    with_port = {**HERE, "MASTER_PORT": str(free_port())}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", GROUP_OF_TWO],
            env={**os.environ, **with_port, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    out, err = started[0].communicate(timeout=PATIENCE)
    started[1].kill()
    started[1].communicate()
    assert out.startswith("rank 0 has lost its group: Timed out waiting 1000ms"), err


def free_port() -> int:
    from octavo_worker.group.seat import listen

    with listen() as listener:
        return int(listener.getsockname()[1])
