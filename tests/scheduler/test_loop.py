"""The loop with its real link, a paper worker behind a real socket, and the front's side played by the test."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from octavo.v1 import step_pb2
from octavo_scheduler.core import Core, Settings
from octavo_scheduler.core.events import Committed, Finished, Output
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.errors import StartError
from octavo_scheduler.link import RouterLink
from octavo_scheduler.loop import MOST_BAD_MESSAGES, Loop

from tests.doubles.paper_process import PaperProcess
from tests.doubles.paper_worker import PaperWorker, answer


class Service:
    """A loop in its thread; outputs are gathered."""

    def __init__(self, address: str, settings: Settings) -> None:
        self.link = RouterLink(address)
        self.outputs: list[Output] = []
        self.ready: list[bool] = []
        self.changed = threading.Condition()
        self.loop = Loop(Core(settings), self.link, time.monotonic, self._deliver, self._ready, boot_id=7)
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()

    def _deliver(self, outputs: list[Output]) -> None:
        with self.changed:
            self.outputs += outputs
            self.changed.notify_all()

    def _ready(self, is_ready: bool) -> None:
        with self.changed:
            self.ready.append(is_ready)
            self.changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout=20), "nothing more happens"

    def submit(self, name: str, prompt: list[int], max_tokens: int) -> None:
        spec = RequestSpec(id=name, prompt=tuple(prompt), max_tokens=max_tokens)
        self.loop.post(lambda core, now: core.submit(spec, now))

    def tokens(self, name: str) -> list[int]:
        return [o.token for o in self.outputs if isinstance(o, Committed) and o.request == name]

    def is_finished(self, *names: str) -> bool:
        return {o.request for o in self.outputs if isinstance(o, Finished)} >= set(names)

    def close(self) -> None:
        self.loop.stop()
        self.thread.join()
        self.link.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(f"ipc://{tmp_path}/w", Settings())
    yield service
    service.close()


def test_answers_come_back_through_real_sockets(service: Service) -> None:
    worker = PaperProcess(service.link.address, PaperWorker(pages=64, max_slots=8))
    prompts = {f"r{n}": list(range(n, n + 5 + n)) for n in range(6)}
    for name, prompt in prompts.items():
        service.submit(name, prompt, 9)
    service.wait(lambda: service.is_finished(*prompts))
    for name, prompt in prompts.items():
        assert service.tokens(name) == answer(prompt, 9)
    assert service.ready == [True]
    worker.stop()


def test_when_a_worker_dies_its_sequences_go_on_elsewhere(service: Service) -> None:
    half = threading.Event()
    dying = PaperProcess(
        service.link.address,
        PaperWorker(pages=64),
        name="dying",
        before_result=lambda plan: half.set() if plan.step == 5 else None,
    )
    service.submit("r", [1, 2, 3], 40)
    assert half.wait(20)
    dying.stop()
    heir = PaperProcess(service.link.address, PaperWorker(pages=64), name="heir")
    service.wait(lambda: service.is_finished("r"))
    assert service.tokens("r") == answer([1, 2, 3], 40)
    assert service.loop.core.counters.workers_lost == 1
    heir.stop()


def test_a_worker_with_other_weights_is_refused(service: Service) -> None:
    first = PaperProcess(service.link.address, PaperWorker(), name="first", digest=b"these")
    service.wait(lambda: service.ready == [True])
    second = PaperProcess(service.link.address, PaperWorker(), name="second", digest=b"others")
    second._thread.join(20)
    assert second.refusal is not None
    assert second.refusal.reason == step_pb2.Refusal.REASON_WEIGHTS
    assert list(service.loop.core.workers) == ["first"]
    first.stop()


def test_a_second_live_worker_of_the_same_name_is_refused(service: Service) -> None:
    first = PaperProcess(service.link.address, PaperWorker(), name="twin")
    service.wait(lambda: service.ready == [True])
    second = PaperProcess(service.link.address, PaperWorker(), name="twin")
    second._thread.join(20)
    assert second.refusal is not None
    assert second.refusal.reason == step_pb2.Refusal.REASON_WORKER_ID
    first.stop()


def test_strangers_change_nothing(service: Service) -> None:
    worker = PaperProcess(service.link.address, PaperWorker(pages=64))
    service.wait(lambda: service.ready == [True])
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.setsockopt(zmq.LINGER, 0)
    stranger.connect(service.link.address)
    forged = step_pb2.WorkerMessage(
        epoch=step_pb2.Epoch(boot_id=7, counter=1), result=step_pb2.StepResult(step=1, token=b"\1\0\0\0")
    )
    odd_column = step_pb2.WorkerMessage(result=step_pb2.StepResult(step=1, token=b"\1"))
    for frame in (b"", b"\xff" * 40, forged.SerializeToString(), odd_column.SerializeToString(), b"\0" * 100_000):
        stranger.send(frame)
    stranger.send_multipart([b"a", b"b", b"c"])
    service.submit("r", [4, 5], 5)
    service.wait(lambda: service.is_finished("r"))
    assert service.tokens("r") == answer([4, 5], 5)
    stranger.close()
    context.term()
    worker.stop()


def test_a_worker_that_talks_nonsense_is_dropped(service: Service) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(service.link.address)
    socket.send(step_pb2.WorkerMessage(hello=PaperWorker().hello("babbler")).SerializeToString())
    service.wait(lambda: service.ready == [True])
    for _ in range(MOST_BAD_MESSAGES):
        socket.send(b"\xff")
    service.wait(lambda: service.ready == [True, False])
    socket.close()
    context.term()


def test_a_taken_address_is_a_start_error(tmp_path: Path) -> None:
    first = RouterLink("tcp://127.0.0.1:*")
    with pytest.raises(StartError, match="cannot listen for workers"):
        RouterLink(first.address)
    first.close()


class ScriptedLink:
    """A link whose messages a test writes; nothing is ever sent anywhere."""

    def __init__(self) -> None:
        self.incoming: list[tuple[bytes, bytes]] = []
        self.reachable = True

    def receive(self, timeout: float) -> list[tuple[bytes, bytes]]:
        messages, self.incoming = self.incoming, []
        return messages

    def send(self, peer: bytes, frame: bytes) -> bool:
        return self.reachable

    def wake(self) -> None: ...


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def scripted() -> tuple[Loop, ScriptedLink, Clock]:
    link, clock = ScriptedLink(), Clock()
    loop = Loop(Core(Settings()), link, clock, lambda outputs: None, lambda ready: None, boot_id=1)
    link.incoming.append((b"peer", step_pb2.WorkerMessage(hello=PaperWorker().hello()).SerializeToString()))
    loop.turn(0)
    assert list(loop.core.workers) == ["paper"]
    return loop, link, clock


def test_a_silent_worker_is_lost_after_its_lease(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, _, clock = scripted
    for clock.now in itertools.takewhile(lambda t: t < 10, itertools.count(0, 1)):
        loop.turn(0)
        assert loop.core.workers
    clock.now = 11
    loop.turn(0)
    assert not loop.core.workers


def test_a_stopped_scheduler_blames_nobody_for_its_own_absence(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, _, clock = scripted
    clock.now = 30
    loop.turn(0)
    assert list(loop.core.workers) == ["paper"]


def test_a_closed_connection_is_noticed_with_the_next_heartbeat(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, link, clock = scripted
    link.reachable = False
    clock.now = 0.6
    loop.turn(0)
    assert not loop.core.workers
