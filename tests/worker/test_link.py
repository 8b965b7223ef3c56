"""The worker's end of the wire, against a ROUTER that each test drives."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zmq
from octavo.v1 import step_pb2 as wire
from octavo_worker import link as link_module
from octavo_worker.curve import load_keys
from octavo_worker.errors import JoinRefused
from octavo_worker.link import Link
from octavo_worker.runner import Runner
from zmq.auth import create_certificates

from tests.faults.versions import UNKNOWN
from tests.patience import PATIENCE
from tests.worker.plans import growth, new_slots, rows, uint16
from tests.worker.router import Router

BEAT = wire.Heartbeat


class Worker:
    """A Link in a thread, which is joined at the end."""

    def __init__(self, runner: Runner, address: str, **config: object) -> None:
        settings = replace(runner.config, scheduler=address, **config)  # type: ignore[arg-type]
        self.link = Link(settings, runner)
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        try:
            self.link.run()
        except Exception as error:
            self.error = error

    def end(self) -> None:
        self.link.stop()
        self.thread.join(timeout=PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    made = Router(tmp_path / "step.ipc")
    yield made
    made.close()


@pytest.fixture
def worker(router: Router, make_runner: Callable[..., Runner]) -> Iterator[Worker]:
    made = Worker(make_runner(worker_id="w1"), router.address)
    yield made
    made.end()


def start(step: int = 1, **parts: object) -> wire.StepPlan:
    """A plan that starts slot 0 and samples it."""
    begin = {"new_slots": new_slots({0: [5, 6, 7]}), "growth": growth({0: [1]}), "rows": rows({0: 3})}
    return wire.StepPlan(step=step, **{**begin, **parts})  # type: ignore[arg-type]


def test_hello_comes_without_an_epoch_and_everything_else_with_the_one_given(router: Router, worker: Worker) -> None:
    first = router.receive("hello")
    assert not first.HasField("epoch")
    assert first.hello.worker_id == "w1"
    router.epoch.counter = 4
    router.send(welcome=wire.Welcome(heartbeat_seconds=0.05))
    assert router.receive("heartbeat").epoch == router.epoch
    router.send(plan=start())
    assert router.receive("result").epoch == router.epoch


def test_a_plan_is_answered_by_its_result_between_two_heartbeats(router: Router, worker: Worker) -> None:
    router.welcome(heartbeat_seconds=5)
    router.send(plan=start())
    before = router.receive_when(lambda message: message.heartbeat.phase == BEAT.PHASE_STEP, "heartbeat of the step")
    answer, after = (router.receive_when(lambda message: True, "message") for _ in range(2))
    assert before.heartbeat.last_step == 0
    assert (answer.result.step, len(answer.result.token)) == (1, 4)
    assert (after.heartbeat.phase, after.heartbeat.last_step) == (BEAT.PHASE_IDLE, 1)


def test_what_only_a_newer_scheduler_knows_is_passed_over(router: Router, worker: Worker) -> None:
    """A field of the future in a plan, in its rows and in the envelope; and a message that says something unheard of."""
    router.welcome()
    plan = start()
    for part in (plan, plan.rows, plan.new_slots):
        part.MergeFromString(UNKNOWN)
    future = wire.SchedulerMessage(epoch=router.epoch)
    future.MergeFromString(UNKNOWN)
    router.socket.send_multipart([router.peer, future.SerializeToString()])
    router.send(plan=plan)
    assert router.receive("result").result.step == 1
    assert (worker.link.counters.unreadable, worker.link.counters.stale) == (0, 0)


def test_two_plans_in_flight_are_executed_in_order(router: Router, worker: Worker) -> None:
    router.welcome()
    router.send(plan=start())
    router.send(plan=wire.StepPlan(step=2, rows=wire.Rows(slot=uint16(0))))
    assert [router.receive("result").result.step for _ in range(2)] == [1, 2]


def test_a_step_waits_for_its_masks_and_plans_behind_it_wait_for_the_step(router: Router, worker: Worker) -> None:
    hello = router.welcome()
    assert hello.takes_late_masks
    router.send(plan=start())
    router.send(plan=wire.StepPlan(step=2, rows=wire.Rows(slot=uint16(0), masked_row=uint16(0))))
    router.send(plan=wire.StepPlan(step=3, rows=wire.Rows(slot=uint16(0))))
    assert router.receive("result").result.step == 1
    for _ in range(3):
        router.receive_when(lambda message: message.heartbeat.phase == BEAT.PHASE_STEP, "heartbeat of the step")
        router.send(heartbeat=BEAT())
    router.send(masks=wire.StepMasks(step=9, mask=bytes(40)))
    router.send(masks=wire.StepMasks(step=2, mask=(1 << 77).to_bytes(40, "little")))
    second, third = (router.receive("result").result for _ in range(2))
    assert (second.step, third.step) == (2, 3)
    assert int.from_bytes(second.token, "little") == 77


def test_a_worker_that_waits_for_masks_leaves_with_its_scheduler_and_comes_back(router: Router, worker: Worker) -> None:
    router.welcome()
    router.send(plan=start())
    router.send(plan=wire.StepPlan(step=2, rows=wire.Rows(slot=uint16(0), masked_row=uint16(0))))
    assert router.receive("result").result.step == 1
    router.send(goodbye=wire.Goodbye())
    router.welcome()
    router.send(plan=start())
    assert router.receive("result").result.step == 1


def test_a_worker_that_waits_for_masks_can_be_stopped(router: Router, worker: Worker) -> None:
    router.welcome()
    router.send(plan=start())
    router.send(plan=wire.StepPlan(step=2, rows=wire.Rows(slot=uint16(0), masked_row=uint16(0))))
    assert router.receive("result").result.step == 1
    worker.end()
    router.receive("goodbye")


def test_an_idle_worker_beats_even_while_the_scheduler_beats_faster(router: Router, worker: Worker) -> None:
    router.welcome(heartbeat_seconds=0.05)
    for _ in range(4):
        router.send(heartbeat=BEAT())
        assert router.receive("heartbeat").heartbeat.phase == BEAT.PHASE_IDLE


def test_after_a_nack_plans_are_ignored_until_a_full_one(router: Router, worker: Worker) -> None:
    router.welcome()
    router.send(plan=wire.StepPlan(step=1, rows=wire.Rows(slot=uint16(3))))
    nack = router.receive("nack").nack
    assert (nack.step, nack.reason, nack.last_step) == (1, wire.Nack.REASON_INVALID, 0)
    assert "slot 3" in nack.message
    router.send(plan=start(2))
    router.send(plan=start(3, full=True))
    assert router.receive("result").result.step == 3
    assert worker.link.counters.ignored_plans == 1


def test_a_gap_is_out_of_sequence(router: Router, worker: Worker) -> None:
    router.welcome()
    router.send(plan=start(2))
    assert router.receive("nack").nack.reason == wire.Nack.REASON_OUT_OF_SEQUENCE


def test_messages_of_another_epoch_and_noise_are_counted_and_dropped(router: Router, worker: Worker) -> None:
    router.welcome()
    router.send(epoch=wire.Epoch(boot_id=1), plan=start())
    router.socket.send_multipart([router.peer, b"\xff\xff\xff"])
    router.send(plan=start())
    assert router.receive("result").result.step == 1
    assert (worker.link.counters.stale, worker.link.counters.unreadable) == (1, 1)


def test_a_scheduler_that_says_goodbye_is_dialled_again_by_an_empty_worker(router: Router, worker: Worker) -> None:
    router.welcome()
    router.send(plan=start())
    router.receive("result")
    first = router.peer
    router.send(goodbye=wire.Goodbye())
    router.welcome()
    assert router.peer != first
    router.send(plan=start())  # slot 0 is free again and steps begin at 1
    assert router.receive("result").result.step == 1


def test_a_scheduler_that_falls_silent_is_dialled_again(
    router: Router, make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "SILENT_SECONDS", 0.2)
    made = Worker(make_runner(), router.address)
    router.welcome()
    router.receive("goodbye")
    router.welcome()
    made.end()


def test_a_worker_that_waits_in_vain_for_a_full_plan_dials_again(
    router: Router, make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "SILENT_SECONDS", 0.3)
    made = Worker(make_runner(), router.address)
    router.welcome()
    router.send(plan=start(9))

    def beat_until_hello(message: wire.WorkerMessage) -> bool:
        if message.HasField("epoch"):
            router.send(heartbeat=BEAT())
        return bool(message.WhichOneof("body") == "hello")

    router.receive_when(beat_until_hello, "hello")
    made.end()


def test_a_refused_worker_stops_with_the_reason(router: Router, make_runner: Callable[..., Runner]) -> None:
    made = Worker(make_runner(), router.address)
    router.receive("hello")
    router.send(refusal=wire.Refusal(reason=wire.Refusal.REASON_WEIGHTS, message="other weights"))
    made.thread.join(timeout=PATIENCE)
    assert isinstance(made.error, JoinRefused)
    assert "refused this worker: other weights" in str(made.error)


def test_a_worker_that_had_joined_waits_until_its_last_stay_is_forgotten(
    router: Router, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "HELLO_SECONDS", 0.1)
    router.welcome()
    router.receive("heartbeat")
    router.send(goodbye=wire.Goodbye())
    router.receive("hello")
    router.send(refusal=wire.Refusal(reason=wire.Refusal.REASON_WORKER_ID, message="w1 is alive"))
    router.welcome()
    assert router.receive("heartbeat").epoch == router.epoch


def test_a_stopped_worker_says_goodbye(router: Router, worker: Worker) -> None:
    router.welcome()
    router.receive("heartbeat")
    worker.link.stop()
    assert router.receive("goodbye").epoch == router.epoch


def test_a_worker_may_be_there_before_the_scheduler(tmp_path: Path, make_runner: Callable[..., Runner]) -> None:
    made = Worker(make_runner(), f"ipc://{tmp_path / 'late.ipc'}")
    late = Router(tmp_path / "late.ipc")
    late.welcome()
    late.receive("heartbeat")
    made.end()
    late.close()


def test_a_link_with_keys_is_encrypted(tmp_path: Path, make_runner: Callable[..., Runner]) -> None:
    for name in ("scheduler", "worker"):
        create_certificates(tmp_path, name)
    server = Router.__new__(Router)
    server.context = zmq.Context()
    server.socket = server.context.socket(zmq.ROUTER)
    server.socket.curve_publickey, server.socket.curve_secretkey = load_keys(
        tmp_path / "scheduler.key_secret", is_secret=True
    )
    server.socket.curve_server = True
    port = server.socket.bind_to_random_port("tcp://127.0.0.1")
    server.epoch, server.peer = wire.Epoch(boot_id=1), b""
    keys = {"curve_key": tmp_path / "worker.key_secret", "curve_server_key": tmp_path / "scheduler.key"}
    made = Worker(make_runner(), f"tcp://127.0.0.1:{port}", **keys)
    server.welcome()
    server.receive("heartbeat")
    made.end()
    server.close()
