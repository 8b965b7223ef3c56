"""What the processes of a server listen on, as the system sees it: what was asked for, and nothing else."""

import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from tests.doubles.tiny_model import make_tiny_model
from tests.processes import module, running

POOL = ("--device=cpu", "--pages=64", "--threads=1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "m", heads=8, kv_heads=4)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def descendants() -> list[psutil.Process]:
    """Of this test; those that it started before are gone."""
    return [process for process in psutil.Process().children(recursive=True) if process.is_running()]


def doors(processes: list[psutil.Process]) -> set[tuple[str, int] | str]:
    """Internet sockets that listen, or that take datagrams; and paths of listening unix sockets."""
    found: set[tuple[str, int] | str] = set()
    for process in processes:
        for each in process.net_connections("inet"):
            if each.status == psutil.CONN_LISTEN or each.type == socket.SOCK_DGRAM:
                found.add((each.laddr.ip.removeprefix("::ffff:"), each.laddr.port))
    inodes = {inode for process in processes for inode in socket_inodes(process.pid)}
    return found | {path for inode, path in listening_paths() if inode in inodes}


def socket_inodes(pid: int) -> Iterator[str]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(entry)
        if target.startswith("socket:["):
            yield target.removeprefix("socket:[").removesuffix("]")


def listening_paths() -> Iterator[tuple[str, str]]:
    """Inode and path of unix sockets that accept connections."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        _, _, _, flags, _, _, inode, *path = line.split()
        if int(flags, 16) & 0x10000:
            yield inode, " ".join(path)


def test_serve_listens_on_its_address_and_on_a_socket_file_of_its_own(model: Path) -> None:
    port = free_port()
    serve = module(
        "octavo_client", "serve", str(model), f"--listen=127.0.0.1:{port}", "--workers=2", "--quiet", *POOL[1:]
    )
    before = set(descendants())
    with running(serve, ready=r"serving|127\.0\.0\.1"):
        started = [process for process in descendants() if process not in before]
        assert len(started) == 4, "serve, a scheduler, two workers"
        inet = {door for door in doors(started) if isinstance(door, tuple)}
        files = {door for door in doors(started) if isinstance(door, str)}
        assert inet == {("127.0.0.1", port)}
        (file,) = files
        folder = Path(file).parent
        assert Path(file).name == "link.sock"
        assert folder.stat().st_mode & 0o077 == 0, "nobody else can enter its folder"


def test_scheduler_and_workers_listen_on_the_addresses_that_they_are_given(model: Path, tmp_path: Path) -> None:
    grpc_port, admin_port, step_port, http_port = free_port(), free_port(), free_port(), free_port()
    scheduler = module(
        "octavo_scheduler",
        *(f"--model={model}", f"--listen=127.0.0.1:{grpc_port}", f"--workers=tcp://127.0.0.1:{step_port}"),
        *(f"--admin-listen=127.0.0.1:{admin_port}", f"--http=127.0.0.1:{http_port}"),
    )
    worker = module("octavo_worker", f"--model={model}", f"--scheduler=tcp://127.0.0.1:{step_port}", *POOL)
    before = set(descendants())
    with running(scheduler, ready=f"administrators 127.0.0.1:{admin_port}"):
        one = [process for process in descendants() if process not in before]
        with running(worker, ready="joined"):
            expected = {("127.0.0.1", port) for port in (grpc_port, admin_port, step_port, http_port)}
            assert doors(one) == expected
            others = [process for process in descendants() if process not in (*before, *one)]
            assert others
            assert doors(others) == set(), "a worker dials and is never dialled"


def test_socket_files_are_for_their_owner_alone(model: Path, tmp_path: Path) -> None:
    flags = (
        "--listen",
        f"unix:{tmp_path}/g",
        "--workers",
        f"ipc://{tmp_path}/w",
        "--admin-listen",
        f"unix:{tmp_path}/a",
    )
    before = set(descendants())
    with running(module("octavo_scheduler", f"--model={model}", *flags), ready="serving"):
        assert doors([p for p in descendants() if p not in before]) == {f"{tmp_path}/{name}" for name in "gwa"}
        assert [(tmp_path / name).stat().st_mode & 0o077 for name in "gwa"] == [0, 0, 0]


def test_ranks_of_a_group_listen_on_loopback_alone(model: Path, tmp_path: Path) -> None:
    steps = f"ipc://{tmp_path}/w"
    scheduler = module("octavo_scheduler", f"--model={model}", f"--listen=unix:{tmp_path}/g", f"--workers={steps}")
    group = module("octavo_worker", f"--model={model}", f"--scheduler={steps}", *POOL, "--tensor-parallel-size=2")
    before = set(descendants())
    with running(scheduler, ready="serving"):
        one = [process for process in descendants() if process not in before]
        with running(group, ready="joined"):
            ranks = [process for process in descendants() if process not in (*before, *one)]
            assert len(ranks) == 2
            assert all(isinstance(door, tuple) and ip_address(door[0]).is_loopback for door in doors(ranks))
