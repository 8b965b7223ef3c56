import fcntl
import gc
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from octavo_scheduler.config import read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.lock import PathLock, socket_path
from octavo_scheduler.model import ServedModel
from octavo_scheduler.server import Scheduler


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("unix:/a/b", "/a/b"),
        ("unix:///a/b", "/a/b"),
        ("unix:b", "b"),
        ("ipc:///a/b", "/a/b"),
        ("ipc://@abstract", None),
        ("ipc://*", None),
        ("tcp://127.0.0.1:1", None),
        ("127.0.0.1:1", None),
    ],
)
def test_only_addresses_with_a_file_have_a_path(address: str, path: str | None) -> None:
    assert socket_path(address) == (path and Path(path))


def test_a_path_is_for_one_until_it_is_let_go(tmp_path: Path) -> None:
    first = PathLock(tmp_path / "s")
    with pytest.raises(StartError, match=f"^{tmp_path}/s is used by another scheduler$"):
        PathLock(tmp_path / "s")
    PathLock(tmp_path / "other").release()
    first.release()
    assert list(tmp_path.iterdir()) == []
    PathLock(tmp_path / "s").release()


def test_a_lock_whose_owner_is_gone_is_let_go(tmp_path: Path) -> None:
    PathLock(tmp_path / "s")
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_process_left_is_in_nobodys_way(tmp_path: Path) -> None:
    program = "import os, pathlib; from octavo_scheduler.lock import PathLock\n"
    program += f"held = PathLock(pathlib.Path('{tmp_path}/s')); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    assert [path.name for path in tmp_path.iterdir()] == ["s.lock"]
    PathLock(tmp_path / "s").release()


def test_a_lock_file_removed_while_it_is_opened_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder removes it between a newcomer's open and flock: a lock on the removed file would keep nobody out."""
    flock = fcntl.flock
    calls: list[int] = []

    def late(descriptor: int, how: int) -> None:
        if not calls:
            (tmp_path / "s.lock").unlink()
        calls.append(how)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    held = PathLock(tmp_path / "s")
    assert len(calls) == 2
    with pytest.raises(StartError, match="another scheduler"):
        PathLock(tmp_path / "s")
    held.release()


def test_a_place_for_no_socket_is_a_start_error(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=f"the folder {tmp_path}/no of the socket {tmp_path}/no/s does not exist"):
        PathLock(tmp_path / "no" / "s")
    (tmp_path / "notes").write_text("precious")
    with pytest.raises(StartError, match="notes is there and is not a socket"):
        PathLock(tmp_path / "notes")
    (tmp_path / "s.lock").mkdir()
    with pytest.raises(StartError, match=r"s\.lock cannot be locked: Is a directory"):
        PathLock(tmp_path / "s")


def scheduler(model: ServedModel, listen: Path, workers: Path) -> Scheduler:
    return Scheduler(
        read_config(["--model", "tiny", "--listen", f"unix:{listen}", "--workers", f"ipc://{workers}"]), model
    )


async def test_a_second_scheduler_on_either_socket_does_not_start(model: ServedModel, tmp_path: Path) -> None:
    for name in ("g", "w"):  # left behind by a process that died
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(tmp_path / name))
    first = scheduler(model, tmp_path / "g", tmp_path / "w")
    await first.start()
    with pytest.raises(StartError, match="w is used by another scheduler"):
        scheduler(model, tmp_path / "other", tmp_path / "w")
    with pytest.raises(StartError, match="g is used by another scheduler"):
        scheduler(model, tmp_path / "g", tmp_path / "other")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(tmp_path / "g"))
    await first.stop(grace=0)
    assert not (tmp_path / "w.lock").exists()


async def test_a_folder_that_is_missing_is_named(model: ServedModel, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=f"^the folder {tmp_path}/no of the socket"):
        scheduler(model, tmp_path / "no" / "g", tmp_path / "w")
    with pytest.raises(StartError, match=f"^the folder {tmp_path}/no of the socket"):
        scheduler(model, tmp_path / "g", tmp_path / "no" / "w")
