"""Messages between a scheduler and its helpers."""

import os
import socket
from collections.abc import Iterator
from threading import Thread

import pytest
from octavo_scheduler.matching.frames import Line


@pytest.fixture
def ends() -> Iterator[tuple[Line, socket.socket]]:
    own, other = socket.socketpair()
    line = Line(own)
    yield line, other
    line.close()
    other.close()


def test_messages_that_come_together_are_told_apart(ends: tuple[Line, socket.socket]) -> None:
    line, other = ends
    far = Line(other)
    for number in range(5):
        far.send({"number": number}, bytes(number))
    assert [line.receive(1) for _ in range(5)] == [({"number": number}, bytes(number)) for number in range(5)]


def test_a_message_that_is_larger_than_what_the_sockets_hold_comes_whole(ends: tuple[Line, socket.socket]) -> None:
    line, other = ends
    body = os.urandom(3 << 20)
    sender = Thread(target=Line(other).send, args=({}, body))
    sender.start()
    assert line.receive(60) == ({}, body)
    sender.join()


def test_half_a_message_is_waited_for_no_longer_than_was_said(ends: tuple[Line, socket.socket]) -> None:
    line, other = ends
    other.sendall(b"\2\0\0\0\1\0\0\0{}")
    with pytest.raises(TimeoutError):
        line.receive(0.05)


def test_a_line_that_is_closed_says_so(ends: tuple[Line, socket.socket]) -> None:
    line, other = ends
    other.sendall(b"\2\0\0\0")
    other.close()
    with pytest.raises(EOFError):
        line.receive(1)
