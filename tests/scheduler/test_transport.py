"""The ZeroMQ link under what ZeroMQ does to others: nothing gets lost, nothing blocks, nothing hangs."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from octavo_scheduler.link import RouterLink

from tests.patience import PATIENCE


@pytest.fixture
def link(tmp_path: Path) -> Iterator[RouterLink]:
    made = RouterLink(f"ipc://{tmp_path}/w")
    yield made
    made.close()


def dial(context: "zmq.Context[zmq.Socket[bytes]]", link: RouterLink, **options: int) -> "zmq.Socket[bytes]":
    dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    for name, value in {"LINGER": 0, **options}.items():
        dealer.setsockopt(getattr(zmq, name), value)
    dealer.connect(link.address)
    return dealer


def hear(link: RouterLink, count: int = 1) -> list[tuple[bytes, bytes]]:
    heard: list[tuple[bytes, bytes]] = []
    for _ in range(10_000):
        heard += link.receive(0.02)
        if len(heard) >= count:
            return heard
    raise AssertionError(f"{len(heard)} of {count} messages came")


def test_ZM01_of_numbered_messages_none_is_lost_however_often_waiting_ends_without_one(link: RouterLink) -> None:
    count, is_over = 20_000, threading.Event()

    def send() -> None:
        with zmq.Context() as context, dial(context, link, SNDHWM=0) as dealer:
            for number in range(count):
                dealer.send(number.to_bytes(4, "little"))
            is_over.wait(PATIENCE)  # what is on its way is lost when a connection is closed

    sender = threading.Thread(target=send)
    sender.start()
    heard: list[int] = []
    for _ in range(100_000):
        heard += [int.from_bytes(frame, "little") for _, frame in link.receive(0.001)]
        if len(heard) >= count:
            break
    is_over.set()
    sender.join()
    assert heard == list(range(count))


def test_ZM02_a_peer_that_does_not_read_is_told_apart_and_blocks_nobody(link: RouterLink) -> None:
    with zmq.Context() as context:
        deaf, other = dial(context, link, RCVHWM=1), dial(context, link)
        deaf.send(b"deaf")
        ((peer, _),) = hear(link)
        sent = [link.send(peer, bytes(10_000)) for _ in range(5000)]
        assert False in sent, "at the high-water mark the answer is no, and not silence"
        taken = sent.index(False)
        other.send(b"other")
        ((second, _),) = hear(link)
        assert link.send(second, b"you")
        assert other.recv() == b"you"
        assert [len(deaf.recv()) for _ in range(taken)] == [10_000] * taken, "what was taken is delivered"
        deaf.close()
        other.close()


def test_ZM05_a_peer_that_left_before_its_answer_is_gone_and_that_is_all(link: RouterLink) -> None:
    with zmq.Context() as context:
        for _ in range(50):
            dealer = dial(context, link)
            dealer.send(b"hello")
            ((peer, _),) = hear(link)
            dealer.close()
            for _ in range(2000):
                if not link.send(peer, b"answer"):
                    break
                link.receive(0.001)
            assert not link.send(peer, b"answer")
    assert not link.send(b"\0nobody", b"answer")


def test_ZM06_a_link_with_peers_ends_a_hundred_times(tmp_path: Path) -> None:
    with zmq.Context() as context:
        for number in range(100):
            link = RouterLink(f"ipc://{tmp_path}/w{number}")
            dealers = [dial(context, link) for _ in range(5)]
            for dealer in dealers:
                dealer.send(b"hello")
            heard = hear(link, 5)
            for peer, _ in heard[:3]:
                assert link.send(peer, b"never read")
            ending = threading.Thread(target=link.close, daemon=True)
            ending.start()
            ending.join(PATIENCE)
            assert not ending.is_alive(), "it hangs"
            for dealer in dealers:
                dealer.close()


def test_ZM09_ZM10_whoever_dials_again_is_a_new_peer_and_is_answered_at_once(link: RouterLink) -> None:
    """The link does nothing while it is dialled, as a busy scheduler."""
    seen: set[bytes] = set()
    with zmq.Context() as context:
        for number in range(100):
            dealer = dial(context, link)
            dealer.send(b"%d" % number)
            ((peer, frame),) = hear(link)
            assert frame == b"%d" % number
            assert peer not in seen, "an identity of one's own would be the same again"
            seen.add(peer)
            assert link.send(peer, b"welcome")
            assert dealer.recv() == b"welcome"
            dealer.close()
