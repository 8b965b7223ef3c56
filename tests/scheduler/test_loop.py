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
from octavo_scheduler.member import LEAST_STEP_LEASE_SECONDS

from tests.doubles.paper_process import PaperProcess
from tests.doubles.paper_worker import PaperWorker, answer
from tests.patience import PATIENCE


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
            assert self.changed.wait_for(condition, timeout=PATIENCE), "nothing more happens"

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
    assert half.wait(PATIENCE)
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
    second._thread.join(PATIENCE)
    assert second.refusal is not None
    assert second.refusal.reason == step_pb2.Refusal.REASON_WEIGHTS
    assert list(service.loop.core.workers) == ["first"]
    first.stop()


def test_a_second_live_worker_of_the_same_name_is_refused(service: Service) -> None:
    first = PaperProcess(service.link.address, PaperWorker(), name="twin")
    service.wait(lambda: service.ready == [True])
    second = PaperProcess(service.link.address, PaperWorker(), name="twin")
    second._thread.join(PATIENCE)
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
    assert service.loop.num_bad == MOST_BAD_MESSAGES
    socket.close()
    context.term()


def test_a_taken_address_is_a_start_error(tmp_path: Path) -> None:
    first = RouterLink("tcp://127.0.0.1:*")
    with pytest.raises(StartError, match="cannot listen for workers"):
        RouterLink(first.address)
    first.close()


class ScriptedLink:
    """A link whose messages a test writes and reads; nothing is ever sent anywhere."""

    def __init__(self) -> None:
        self.incoming: list[tuple[bytes, bytes]] = []
        self.sent: list[step_pb2.SchedulerMessage] = []
        self.reachable = True
        self.unreachable: set[bytes] = set()
        self.is_shaken = False

    def receive(self, timeout: float) -> list[tuple[bytes, bytes]]:
        messages, self.incoming = self.incoming, []
        return messages

    def send(self, peer: bytes, frame: bytes) -> bool:
        self.sent.append(step_pb2.SchedulerMessage.FromString(frame))
        return self.reachable and peer not in self.unreachable

    def wake(self) -> None: ...
    def has_lost_a_peer(self) -> bool:
        return self.is_shaken


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
    clock.now = 10
    loop.turn(0)
    clock.now = 10.5
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


def test_what_a_worker_leaves_that_is_lost_while_plans_are_made_is_planned_in_the_same_turn(
    scripted: tuple[Loop, ScriptedLink, Clock],
) -> None:
    loop, link, _ = scripted
    hello = PaperWorker().hello()
    hello.worker_id = "other"
    link.incoming.append((b"other", step_pb2.WorkerMessage(hello=hello).SerializeToString()))
    loop.turn(0)
    for name, max_tokens in (("a", 1), ("b", 4)):
        spec = RequestSpec(id=name, prompt=(1, 2, 3), max_tokens=max_tokens, salt=name)
        loop.post(lambda core, now, spec=spec: core.submit(spec, now))  # type: ignore[misc]
    link.unreachable.add(b"other")
    loop.turn(0)
    assert [message.plan.step for message in link.sent if message.HasField("plan")] == [1, 1, 2], "one of them was lost"
    assert list(loop.core.workers) == ["paper"]
    assert not loop.core.waiting


def test_after_a_connection_was_closed_all_workers_are_tried_at_once(
    scripted: tuple[Loop, ScriptedLink, Clock],
) -> None:
    """It is not said whose connection it was, and the transport may take a moment to refuse what goes there."""
    loop, link, clock = scripted
    clock.now = 0.21
    link.is_shaken = True
    loop.turn(0)
    assert loop.core.workers
    link.is_shaken, link.reachable = False, False
    clock.now = 0.22
    loop.turn(0)
    assert not loop.core.workers


def test_a_step_of_known_length_may_take_eight_times_as_long_but_two_seconds_at_least(
    scripted: tuple[Loop, ScriptedLink, Clock],
) -> None:
    loop, link, clock = with_plans_in_flight(scripted)
    for _ in range(4):
        clock.now += 0.1
        answer_oldest(loop, link)
    for _ in range(3):
        clock.now += 0.6
        loop.turn(0)
        assert loop.core.workers
    clock.now += 0.3
    loop.turn(0)
    assert not loop.core.workers


def test_a_step_of_which_nothing_is_known_may_take_a_minute(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, _, clock = with_plans_in_flight(scripted)
    for clock.now in range(1, 60):
        loop.turn(0)
        assert loop.core.workers
    for clock.now in (60, 61):
        loop.turn(0)
    assert not loop.core.workers


def say(loop: Loop, link: ScriptedLink, **body: object) -> None:
    """A message of the welcomed worker."""
    member = loop.members[b"peer"]
    epoch = step_pb2.Epoch(boot_id=member.epoch.boot_id, counter=member.epoch.counter)
    link.incoming.append((b"peer", step_pb2.WorkerMessage(epoch=epoch, **body).SerializeToString()))  # type: ignore[arg-type]
    loop.turn(0)


def with_plans_in_flight(scripted: tuple[Loop, ScriptedLink, Clock]) -> tuple[Loop, ScriptedLink, Clock]:
    loop = scripted[0]
    loop.post(lambda core, now: core.submit(RequestSpec(id="r", prompt=(1, 2), max_tokens=9), now))
    loop.turn(0)
    assert len(loop.core.workers["paper"].in_flight) == 2
    return scripted


def test_heartbeats_keep_an_idle_worker_alive(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, link, clock = scripted
    for clock.now in range(1, 40):
        say(loop, link, heartbeat=step_pb2.Heartbeat(phase=step_pb2.Heartbeat.PHASE_IDLE))
    assert list(loop.core.workers) == ["paper"]


def answer_oldest(loop: Loop, link: ScriptedLink) -> None:
    step = loop.core.workers["paper"].in_flight[0].step
    say(loop, link, result=step_pb2.StepResult(step=step, token=b"\1\0\0\0"))


def test_CK01_jumps_of_the_wall_clock_lose_no_worker_and_fire_no_deadline_early(
    scripted: tuple[Loop, ScriptedLink, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every ten seconds the wall clock jumps an hour forth or back."""
    loop, link, clock = scripted
    wall = [1.7e9]
    monkeypatch.setattr(time, "time", lambda: wall[0] + clock.now)
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * (wall[0] + clock.now)))
    spec = RequestSpec(id="r", prompt=(1, 2), max_tokens=60, deadline=95.0)
    loop.post(lambda core, now: core.submit(spec, now))
    loop.turn(0)
    for clock.now in range(1, 95):
        wall[0] += {0: 3600, 5: -3600}.get(int(clock.now) % 10, 0) * (1 if clock.now % 20 < 10 else -1)
        answer_oldest(loop, link) if clock.now % 2 else loop.turn(0)
        assert list(loop.core.requests) == ["r"]
    assert loop.core.counters.workers_lost == 0
    clock.now = 95
    loop.turn(0)
    assert not loop.core.requests, "on the monotonic clock the deadline has come"


@pytest.mark.parametrize("absence", [30, 519])
@pytest.mark.parametrize("is_busy", [False, True])
def test_CK02_a_scheduler_that_was_suspended_evicts_only_who_stays_silent_after_it_woke(
    scripted: tuple[Loop, ScriptedLink, Clock], absence: int, is_busy: bool
) -> None:
    loop, link, clock = with_plans_in_flight(scripted) if is_busy else scripted
    hello = step_pb2.WorkerMessage(hello=PaperWorker().hello("dead meanwhile", b"paper"))
    link.incoming.append((b"other", hello.SerializeToString()))
    loop.turn(0)
    clock.now = absence
    loop.turn(0)
    assert sorted(loop.core.workers) == ["dead meanwhile", "paper"]
    for clock.now in range(absence + 1, absence + 13):
        if is_busy:
            answer_oldest(loop, link) if loop.core.workers["paper"].in_flight else loop.turn(0)
        else:
            say(loop, link, heartbeat=step_pb2.Heartbeat(phase=step_pb2.Heartbeat.PHASE_IDLE))
    assert list(loop.core.workers) == ["paper"]
    assert loop.core.counters.workers_lost == 1


def test_no_step_is_said_to_have_taken_as_long_as_the_scheduler_was_suspended(
    scripted: tuple[Loop, ScriptedLink, Clock],
) -> None:
    """Else a plan that is lost right after it woke would be waited for eight times as long."""
    loop, link, clock = with_plans_in_flight(scripted)
    clock.now = 90
    answer_oldest(loop, link)
    (member,) = loop.members.values()
    assert [entry.step for entry in member.sent] == [2, 3]
    assert member.sent[-1].lease == LEAST_STEP_LEASE_SECONDS
    assert member.answer_seconds.sum == 0


def test_results_of_another_epoch_are_counted_and_dropped(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, link, _ = with_plans_in_flight(scripted)
    for boot_id, counter in ((1, 2), (2, 1), (0, 0)):
        epoch = step_pb2.Epoch(boot_id=boot_id, counter=counter)
        result = step_pb2.StepResult(step=1, token=b"\1\0\0\0")
        link.incoming.append((b"peer", step_pb2.WorkerMessage(epoch=epoch, result=result).SerializeToString()))
    loop.turn(0)
    assert loop.num_stale == 3
    assert len(loop.core.workers["paper"].in_flight) == 2


def test_who_was_welcomed_by_an_earlier_scheduler_is_told_to_dial_anew(
    scripted: tuple[Loop, ScriptedLink, Clock],
) -> None:
    """A worker notices by itself only after ten seconds that nobody speaks in its epoch any more."""
    loop, link, _ = scripted
    earlier = step_pb2.Epoch(boot_id=6, counter=3)
    beat = step_pb2.WorkerMessage(epoch=earlier, heartbeat=step_pb2.Heartbeat(last_step=9))
    link.incoming.append((b"orphan", beat.SerializeToString()))
    loop.turn(0)
    message = link.sent[-1]
    assert (message.epoch, message.WhichOneof("body")) == (earlier, "goodbye")
    assert loop.num_stale == 1
    assert list(loop.members) == [b"peer"]


def test_a_step_may_take_longer_than_an_idle_silence_but_not_for_ever(
    scripted: tuple[Loop, ScriptedLink, Clock],
) -> None:
    loop, link, clock = with_plans_in_flight(scripted)
    for clock.now in range(1, 60):
        loop.turn(0)
    assert list(loop.core.workers) == ["paper"]
    for clock.now in range(60, 64):
        say(loop, link, heartbeat=step_pb2.Heartbeat(last_step=0)) if loop.members else None
    assert not loop.core.workers, "heartbeats do not bring back a step that never ends"


def test_the_time_of_a_step_counts_from_the_end_of_the_one_before(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, link, clock = with_plans_in_flight(scripted)
    for clock.now in range(1, 50):
        loop.turn(0)
    say(loop, link, result=step_pb2.StepResult(step=1, token=b"\1\0\0\0"))
    for clock.now in range(50, 100):
        loop.turn(0)
    assert list(loop.core.workers) == ["paper"]


@pytest.mark.parametrize("word", ["heartbeat", "result"])
def test_a_result_that_got_lost_is_noticed_by_the_next_word(
    scripted: tuple[Loop, ScriptedLink, Clock], word: str
) -> None:
    loop, link, _ = with_plans_in_flight(scripted)
    if word == "heartbeat":
        say(loop, link, heartbeat=step_pb2.Heartbeat(last_step=1))
    else:
        say(loop, link, result=step_pb2.StepResult(step=2, token=b"\1\0\0\0"))
    assert not loop.core.workers
    assert len(loop.core.waiting) == 1


def test_a_worker_whose_steps_fail_time_and_again_is_sent_away(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, link, _ = with_plans_in_flight(scripted)
    for _ in range(20):
        if not loop.members:
            break
        say(loop, link, nack=step_pb2.Nack(step=loop.core.workers["paper"].step, reason=99))  # type: ignore[arg-type]
    assert not loop.members
    assert not loop.core.workers


def test_a_worker_whose_results_cannot_be_right_is_sent_away(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, link, _ = with_plans_in_flight(scripted)
    for _ in range(20):
        if not loop.members:
            break
        in_flight = loop.core.workers["paper"].in_flight
        step = in_flight[0].step if in_flight else 0
        say(loop, link, result=step_pb2.StepResult(step=step, token=b"\xff\xff\xff\xff"))
    assert not loop.members
    assert not loop.core.workers


@pytest.mark.parametrize(
    "body",
    [{"heartbeat": step_pb2.Heartbeat(phase=99)}, {"nack": step_pb2.Nack(step=9, reason=99)}],  # type: ignore[arg-type]
)
def test_enum_numbers_that_nobody_knows_harm_nobody(
    scripted: tuple[Loop, ScriptedLink, Clock], body: dict[str, object]
) -> None:
    loop, link, _ = scripted
    say(loop, link, **body)
    link.incoming.append((b"stranger", step_pb2.WorkerMessage(**body).SerializeToString()))  # type: ignore[arg-type]
    loop.turn(0)
    assert list(loop.core.workers) == ["paper"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("device_pages", 2**31), ("host_pages", 2**31), ("max_slots", 2**17), ("max_context", 2**31), ("vocab_size", 5)],
)
def test_a_hello_out_of_all_proportion_is_refused_before_anything_is_allocated(field: str, value: int) -> None:
    link = ScriptedLink()
    loop = Loop(Core(Settings()), link, Clock(), lambda o: None, lambda r: None, boot_id=1, vocab_size=900)
    hello = PaperWorker().hello()
    setattr(hello, field, value)
    link.incoming.append((b"peer", step_pb2.WorkerMessage(hello=hello).SerializeToString()))
    loop.turn(0)
    assert not loop.core.workers
    assert link.sent[-1].refusal.reason == step_pb2.Refusal.REASON_GEOMETRY


def test_when_all_workers_are_gone_the_next_may_bring_other_weights(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, link, _ = scripted
    say(loop, link, goodbye=step_pb2.Goodbye())
    hello = PaperWorker().hello("next", b"other weights")
    link.incoming.append((b"other", step_pb2.WorkerMessage(hello=hello).SerializeToString()))
    loop.turn(0)
    assert list(loop.core.workers) == ["next"]


def test_other_weights_may_come_once_what_the_last_worker_left_behind_has_ended(
    scripted: tuple[Loop, ScriptedLink, Clock],
) -> None:
    loop, link, _ = with_plans_in_flight(scripted)
    say(loop, link, goodbye=step_pb2.Goodbye())
    hello = step_pb2.WorkerMessage(hello=PaperWorker().hello("next", b"other weights")).SerializeToString()
    link.incoming.append((b"other", hello))
    loop.turn(0)
    assert not loop.core.workers, "a request lives that was begun with the first weights"
    loop.post(lambda core, now: core.abort("r", now))
    loop.turn(0)
    link.incoming.append((b"other", hello))
    loop.turn(0)
    assert list(loop.core.workers) == ["next"]


def test_measured_copy_rates_reach_the_core(scripted: tuple[Loop, ScriptedLink, Clock]) -> None:
    loop, link, _ = with_plans_in_flight(scripted)
    say(loop, link, result=step_pb2.StepResult(step=1, token=b"\1\0\0\0", swapped_bytes=3000, swap_seconds=2.0))
    assert loop.core.workers["paper"].copy_rate == 1500
