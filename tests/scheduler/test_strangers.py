"""Strangers at the socket that workers dial: whatever they are and send, nothing changes and the others go on."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import zmq
import zmq.auth
from octavo.v1 import step_pb2
from octavo_client.client import AsyncClient
from octavo_client.params import SamplingParams
from octavo_scheduler.config import read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.keys import main as make_keys
from octavo_scheduler.link import check_library
from octavo_scheduler.model import ServedModel
from octavo_scheduler.server import Scheduler
from zmq.utils.monitor import recv_monitor_message

from tests.doubles.paper_process import PaperProcess
from tests.doubles.paper_worker import PaperWorker, answer
from tests.patience import PATIENCE, until

Socket = zmq.Socket[bytes]


@dataclass
class Guarded:
    """A scheduler that listens with CURVE, and a worker on its allow-list."""

    scheduler: Scheduler
    keys: Path

    def picture(self) -> tuple[object, ...]:
        """All that a frame could have changed."""
        loop, core = self.scheduler.loop, self.scheduler.loop.core
        members = [(member.worker, member.epoch, member.num_bad) for member in loop.members.values()]
        return members, loop.num_bad, loop.num_stale, sorted(core.workers), asdict(core.counters)

    def server_key(self) -> bytes:
        return zmq.auth.load_certificate(self.keys / "worker" / "scheduler.key")[0]

    def worker_keys(self) -> tuple[bytes, bytes]:
        public, secret = zmq.auth.load_certificate(self.keys / "worker" / "worker.key_secret")
        assert secret is not None
        return public, secret

    def port(self) -> int:
        return int(self.scheduler.link.address.rpartition(":")[2])


def give(dealer: Socket, server: bytes, own: tuple[bytes, bytes]) -> None:
    dealer.curve_serverkey = server
    dealer.curve_publickey, dealer.curve_secretkey = own


@pytest.fixture
async def guarded(model: ServedModel, tmp_path: Path) -> AsyncIterator[Guarded]:
    make_keys([str(tmp_path / "k")])
    own = tmp_path / "k" / "scheduler"
    flags = ["--model", "tiny", "--listen", f"unix:{tmp_path}/g", "--workers", "tcp://127.0.0.1:*"]
    flags += ["--curve-key", str(own / "scheduler.key_secret"), "--curve-allow", str(own / "allow")]
    scheduler = Scheduler(read_config(flags), model)
    made = Guarded(scheduler, tmp_path / "k")
    await scheduler.start()
    worker = PaperProcess(
        scheduler.link.address,
        PaperWorker(page_size=4, pages=64),
        name="friend",
        prepare=lambda dealer: give(dealer, made.server_key(), made.worker_keys()),
    )
    await until(lambda: "friend" in scheduler.loop.core.workers)
    yield made
    await scheduler.stop(grace=0)
    worker.stop()


STRANGERS: dict[str, Callable[[Guarded, Socket], None]] = {
    "without any key": lambda guarded, dealer: None,
    "with a key that is not on the list": lambda guarded, dealer: give(
        dealer, guarded.server_key(), zmq.curve_keypair()
    ),
    "with another scheduler's key": lambda guarded, dealer: give(dealer, zmq.curve_keypair()[0], guarded.worker_keys()),
    "with the public key of a worker alone": lambda guarded, dealer: give(
        dealer, guarded.server_key(), (guarded.worker_keys()[0], zmq.curve_keypair()[1])
    ),
    "with a password": lambda guarded, dealer: dealer.setsockopt(zmq.PLAIN_USERNAME, b"worker"),
}


def frames_of_a_stranger(guarded: Guarded) -> list[bytes]:
    """A Hello of its own, a Hello and a Goodbye in the name of the worker that is here, noise, and a large frame."""
    (member,) = guarded.scheduler.loop.members.values()
    epoch = step_pb2.Epoch(boot_id=member.epoch.boot_id, counter=member.epoch.counter)
    draw = random.Random(0)
    return [
        step_pb2.WorkerMessage(hello=PaperWorker().hello("stranger")).SerializeToString(),
        step_pb2.WorkerMessage(hello=PaperWorker().hello("friend")).SerializeToString(),
        step_pb2.WorkerMessage(epoch=epoch, goodbye=step_pb2.Goodbye(message="bye")).SerializeToString(),
        *(draw.randbytes(draw.randrange(200)) for _ in range(200)),
        bytes(1 << 20),
    ]


def knock(guarded: Guarded, kind: str, frames: list[bytes], socket_type: int = zmq.DEALER) -> int:
    """Dials, sends all that fits, and waits until the other side has turned it away; the event that said so."""
    with zmq.Context() as context, context.socket(socket_type) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.SNDTIMEO, 100)
        STRANGERS[kind](guarded, dealer)
        refused = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        refused |= zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        with dealer.get_monitor_socket(refused) as monitor:
            dealer.connect(guarded.scheduler.link.address)
            for frame in frames if socket_type == zmq.DEALER else ():
                dealer.send(frame)
            assert monitor.poll(round(PATIENCE * 1000)), "it was neither let in nor turned away"
            event: int = recv_monitor_message(monitor)["event"]
            dealer.disable_monitor()
    return event


async def still_serves(guarded: Guarded) -> bool:
    async with AsyncClient(guarded.scheduler.address) as client:
        params = SamplingParams(max_tokens=8, seed=0, ignore_eos=True)
        output = await client.generate({"prompt_token_ids": [1, 2, 3]}, params, timeout=PATIENCE)
    return output.outputs[0].token_ids == answer([1, 2, 3], 8)


@pytest.mark.parametrize("kind", STRANGERS)
async def test_a_stranger_changes_nothing(guarded: Guarded, kind: str) -> None:
    before = guarded.picture()
    event = await asyncio.to_thread(knock, guarded, kind, frames_of_a_stranger(guarded))
    assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED
    assert guarded.picture() == before
    assert await still_serves(guarded)
    assert guarded.picture()[:4] == before[:4]


@pytest.mark.parametrize("kind", [zmq.REQ, zmq.PUB, zmq.SUB, zmq.PUSH])
async def test_another_kind_of_socket_is_turned_away(guarded: Guarded, kind: int) -> None:
    before = guarded.picture()
    assert await asyncio.to_thread(knock, guarded, "without any key", [], kind) != zmq.EVENT_HANDSHAKE_SUCCEEDED
    assert guarded.picture() == before


def speak(port: int, words: bytes) -> None:
    """Over plain TCP; returns when the other side hangs up, or says nothing more."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        try:
            connection.sendall(words)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
        except OSError:  # it was cut off, which is as good
            pass


GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01"


async def test_ZM08_a_malformed_handshake_harms_nobody(guarded: Guarded) -> None:
    """Requests of other protocols, and greetings of ZeroMQ that are cut short, too long, or follow no rule."""
    before, draw = guarded.picture(), random.Random(8)
    curve = GREETING + b"CURVE".ljust(20, b"\0") + bytes(32)
    words = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(200), GREETING, curve, curve + b"\x04\xff" * 500]
    for _ in range(300):
        noise = bytearray(curve + b"\x04\xc8\x05HELLO" + draw.randbytes(194))
        for _ in range(draw.randrange(1, 6)):
            noise[draw.randrange(len(noise))] = draw.randrange(256)
        words.append(bytes(noise[: draw.randrange(1, len(noise) + 1)]))
    for each in words:
        await asyncio.to_thread(speak, guarded.port(), each)
    assert guarded.picture() == before
    assert await still_serves(guarded)


def test_ZM08_a_libzmq_that_strangers_can_break_is_a_start_error() -> None:
    check_library((4, 3, 5))
    check_library((4, 4, 0))
    for version in ((4, 3, 4), (4, 2, 5), (3, 9, 9)):
        with pytest.raises(StartError, match=rf"libzmq {'.'.join(map(str, version))} .* 4\.3\.5 or newer"):
            check_library(version)


async def test_frames_that_are_no_messages_change_nothing_but_their_count(model: ServedModel, tmp_path: Path) -> None:
    """Without keys, as on one machine: who can reach the socket may greet as a worker, and nothing else."""
    flags = ["--model", "tiny", "--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w"]
    scheduler = Scheduler(read_config(flags), model)
    await scheduler.start()
    worker = PaperProcess(scheduler.link.address, PaperWorker(page_size=4, pages=64), name="friend")
    plain = Guarded(scheduler, tmp_path)
    while not scheduler.loop.members:
        await asyncio.sleep(0.01)
    before = plain.picture()
    _, _, goodbye, *noise = frames_of_a_stranger(plain)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(scheduler.link.address)
        for frame in (goodbye, *noise):
            dealer.send(frame)
        for parts in ([b""], [b"", b""], [goodbye, goodbye], [b"x"] * 1000):
            dealer.send_multipart(parts)
        await until(lambda: scheduler.loop.num_bad + scheduler.loop.num_stale == 1 + len(noise) + 4)
    after = plain.picture()
    assert (after[0], after[3:]) == (before[0], before[3:])
    assert scheduler.loop.num_stale >= 1, "the goodbye has the epoch of another peer"
    assert await still_serves(plain)
    await scheduler.stop(grace=0)
    worker.stop()
