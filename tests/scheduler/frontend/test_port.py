"""The port that front processes share, held by nobody else."""

import socket

import pytest
from octavo_scheduler.config import read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.frontend.port import SharedPort


def listener(address: str) -> socket.socket:
    """As a front process listens."""
    host, _, port = address.rpartition(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((host, int(port)))
    made.listen()
    return made


def test_a_port_that_is_held_can_be_listened_on_by_several_and_gets_no_connections_itself() -> None:
    held = SharedPort("127.0.0.1:0")
    with listener(held.address) as one, listener(held.address) as two:
        for each in (one, two):
            each.settimeout(0.01)
        host, _, port = held.address.rpartition(":")
        came = 0
        for _ in range(16):
            with socket.create_connection((host, int(port)), 5):
                for each in (one, two):
                    try:
                        each.accept()[0].close()
                        came += 1
                    except TimeoutError:
                        continue
        assert came == 16
    held.release()


def test_a_port_that_others_listen_on_is_refused_though_it_could_be_shared() -> None:
    held = SharedPort("127.0.0.1:0")
    with listener(held.address), pytest.raises(StartError, match="cannot listen on"):
        SharedPort(held.address, patience=0.0)
    held.release()


def test_a_name_of_this_machine_will_do() -> None:
    held = SharedPort("localhost:0")
    assert held.address.startswith("localhost:")
    held.release()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--frontends=65"], "must lie in"),
        (["--frontends=-1"], "must lie in"),
        (["--frontends=2", "--listen=unix:/tmp/x"], "shares a TCP port"),
    ],
)
def test_what_cannot_be_shared_is_refused_with_a_sentence(flags: list[str], words: str) -> None:
    with pytest.raises(StartError, match=words):
        read_config(["--model=m", *flags])
