import logging
import time
from pathlib import Path

import pytest
import zmq
import zmq.auth
from octavo_scheduler.errors import StartError
from octavo_scheduler.keys import main as make_keys
from octavo_scheduler.link import CurveFiles, RouterLink


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys([str(tmp_path / "keys")])
    return tmp_path / "keys"


def curve(keys: Path) -> CurveFiles:
    return CurveFiles(keys / "scheduler" / "scheduler.key_secret", keys / "scheduler" / "allow")


def hears_the_worker(link: RouterLink, keys: Path, seconds: float) -> bool:
    context = zmq.Context()
    worker = context.socket(zmq.DEALER)
    worker.setsockopt(zmq.LINGER, 0)
    worker.curve_publickey, worker.curve_secretkey = zmq.auth.load_certificate(keys / "worker" / "worker.key_secret")
    worker.curve_serverkey, _ = zmq.auth.load_certificate(keys / "worker" / "scheduler.key")
    worker.connect(link.address)
    worker.send(b"hello")
    messages, until = link.receive(0), time.monotonic() + seconds
    while not messages and (left := until - time.monotonic()) > 0:  # it returns for other reasons, too
        messages = link.receive(left)
    worker.close()
    context.term()
    return [message for _, message in messages] == [b"hello"]


def test_a_worker_on_the_allow_list_is_heard(keys: Path, tmp_path: Path) -> None:
    link = RouterLink(f"ipc://{tmp_path}/w", curve(keys))
    assert hears_the_worker(link, keys, 30)
    link.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_it_says_where_it_listens_in_words_that_a_worker_can_dial(host: str) -> None:
    link = RouterLink(f"tcp://{host}:*")
    assert link.address.startswith(f"tcp://{host}:")
    link.close()


def test_an_empty_allow_list_lets_nobody_in_and_says_so(
    keys: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (keys / "scheduler" / "allow" / "worker.key").unlink()
    with caplog.at_level(logging.WARNING):
        link = RouterLink(f"ipc://{tmp_path}/w", curve(keys))
    assert "allow holds no .key file: no worker may join" in caplog.text
    assert not hears_the_worker(link, keys, 0.5)
    link.close()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no CURVE key"),
        ("# an empty backup\n", "holds no CURVE key"),
        ('public-key = "abc"\n', "holds no CURVE key"),
        ('public-key = "abcde"\n', "holds a CURVE key of 4 bytes; it must have 32"),
        (f'public-key = "{"~" * 40}"\n', "holds no CURVE key"),
        (f'public-key = "{"#" * 40}"\n', "holds no CURVE key"),
    ],
)
def test_one_broken_key_on_the_allow_list_is_named(keys: Path, tmp_path: Path, content: str, sentence: str) -> None:
    broken = keys / "scheduler" / "allow" / "old.key"
    broken.write_text(content)
    with pytest.raises(StartError, match=f"^{broken} {sentence}"):
        RouterLink(f"ipc://{tmp_path}/w", curve(keys))


def test_what_cannot_be_read_is_named(keys: Path, tmp_path: Path) -> None:
    address, own = f"ipc://{tmp_path}/w", curve(keys)
    (keys / "scheduler" / "allow" / "folder.key").mkdir()
    with pytest.raises(StartError, match=r"allow/folder\.key cannot be read: Is a directory"):
        RouterLink(address, own)
    for place, reason in (("nowhere", "No such file or directory"), ("worker/worker.key", "Not a directory")):
        with pytest.raises(StartError, match=f"the folder {keys / place} cannot be read: {reason}"):
            RouterLink(address, CurveFiles(own.secret_key, keys / place))
    with pytest.raises(StartError, match="nothing cannot be read: No such file"):
        RouterLink(address, CurveFiles(keys / "nothing", own.allowed))
    with pytest.raises(StartError, match=r"scheduler\.key has no secret key"):
        RouterLink(address, CurveFiles(keys / "scheduler" / "scheduler.key", own.allowed))


def test_a_key_taken_off_the_allow_list_is_unknown_once_it_is_read_again_and_a_bad_one_changes_nothing(
    keys: Path, tmp_path: Path
) -> None:
    link = RouterLink(f"ipc://{tmp_path}/w", curve(keys))
    allowed = keys / "scheduler" / "allow" / "worker.key"
    key = allowed.read_text()
    allowed.unlink()
    assert hears_the_worker(link, keys, 30)
    link.reload()
    assert not hears_the_worker(link, keys, 1)
    allowed.write_text(key)
    link.reload()
    assert hears_the_worker(link, keys, 30)
    allowed.write_text("nonsense")
    with pytest.raises(StartError, match="holds no CURVE key"):
        link.reload()
    assert hears_the_worker(link, keys, 30)
    link.close()
