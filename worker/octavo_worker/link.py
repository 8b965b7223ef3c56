"""The worker's end of the step protocol: one DEALER socket, one thread.

    dial ── Hello ──> wait ── Welcome ──> serve ── Goodbye or silence of the scheduler ──> dial again, emptied
                       └──── Refusal ──> JoinRefused                └── stop() or the lifeline ──> Goodbye, end

A worker whose last step failed says no Hello before a step of one token has passed.

Plans are executed in this thread, which also sends the heartbeats: before and after each step and while idle. A worker
that hangs in a step therefore falls silent, which is the point. Where a device computes, the next plan is taken meanwhile.
Every message in and out carries the epoch of Welcome; others are counted and dropped.
"""

import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import zmq
from google.protobuf.message import DecodeError
from octavo.v1 import step_pb2 as wire

from octavo_worker.config import WorkerConfig
from octavo_worker.curve import use_curve
from octavo_worker.errors import JoinRefused, PlanRefused, Reason
from octavo_worker.runner import Pending, Runner
from octavo_worker.warming import self_test

SILENT_HEARTBEATS = 5  # so many missing ones, but at least SILENT_SECONDS, mean that the other side is gone
SILENT_SECONDS = 10.0
HELLO_SECONDS = 5.0  # without an answer for so long, dial again
MOST_PENDING = 2  # plans in flight, as the scheduler has them
LEAST_REST_SECONDS, MOST_REST_SECONDS = 0.05, 30.0  # after a failed step; doubled with each one more
MEMORY_SECONDS = 1.0  # between two words about the device's memory; asking takes a driver a while
LOOK_SECONDS = 50e-6  # between two looks at a device that computes
GOODBYE_MILLISECONDS = 500  # to get the last message out

SOCKET_OPTIONS = {
    zmq.LINGER: 0,
    zmq.IMMEDIATE: 1,
    zmq.SNDHWM: 1000,
    zmq.RCVHWM: 16,
    zmq.MAXMSGSIZE: 64 << 20,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 1000,  # a scheduler that restarts has its workers back soon
    zmq.TCP_KEEPALIVE: 1,
    zmq.IPV6: 1,
    zmq.HEARTBEAT_IVL: 2000,
    zmq.HEARTBEAT_TIMEOUT: 6000,
    zmq.HEARTBEAT_TTL: 6000,
}
NACK_REASONS = {
    Reason.OUT_OF_SEQUENCE: wire.Nack.REASON_OUT_OF_SEQUENCE,
    Reason.INVALID: wire.Nack.REASON_INVALID,
    Reason.FAILED: wire.Nack.REASON_FAILED,
    Reason.OUT_OF_MEMORY: wire.Nack.REASON_OUT_OF_MEMORY,
}


@dataclass(slots=True)
class LinkCounters:
    """Messages that led to nothing, and dials."""

    dials: int = 0
    stale: int = 0
    unreadable: int = 0
    ignored_plans: int = 0


class Link:
    """Serves one scheduler until stopped."""

    def __init__(self, config: WorkerConfig, runner: Runner) -> None:
        self.config, self.runner = config, runner
        self.counters = LinkCounters()
        self.context = zmq.Context()
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)
        self.is_stopped = self.has_joined = False  # joined ever
        self.num_failed = 0  # steps since the last good one
        self.epoch = wire.Epoch()
        self.heartbeat_seconds = 1.0
        self.next_beat = self.next_memory = 0.0
        self.needs_full = False  # after a Nack
        self.pending: deque[Pending] = deque()  # plans whose results are not yet sent
        self.behind: deque[wire.SchedulerMessage] = deque()  # came while a step waited for its masks
        self.socket: zmq.Socket[bytes]

    def stop(self) -> None:
        """End in order after the step in hand. May be called from a signal or another thread."""
        self.is_stopped = True
        with suppress(OSError):  # full or closed: awake already
            os.write(self.wake_write, b"!")

    def run(self) -> None:
        """Serve until `stop` or the end of the lifeline. Raises JoinRefused."""
        try:
            while not self.is_stopped:
                with self.dialled():
                    if self.join():
                        self.serve()
        finally:
            self.context.destroy(linger=0)
            os.close(self.wake_read)
            os.close(self.wake_write)

    @contextmanager
    def dialled(self) -> Iterator[None]:
        """A fresh socket and an empty worker."""
        self.counters.dials += 1
        self.pending.clear()
        self.behind.clear()
        self.runner.reset()
        self.needs_full = False
        self.socket = socket = self.context.socket(zmq.DEALER)
        for option, value in SOCKET_OPTIONS.items():
            socket.setsockopt(option, value)
        use_curve(socket, self.config)
        socket.connect(self.config.scheduler)
        self.poller = zmq.Poller()
        self.poller.register(socket, zmq.POLLIN)
        self.poller.register(self.wake_read, zmq.POLLIN)
        if self.config.lifeline is not None:
            self.poller.register(self.config.lifeline, zmq.POLLIN)
        try:
            yield
        finally:
            socket.close()

    def join(self) -> bool:
        """Say Hello; whether a Welcome came in time."""
        self.recover()
        if not self.wait_until_connected():
            return False
        self.send(wire.WorkerMessage(hello=self.runner.hello()))
        deadline = time.monotonic() + HELLO_SECONDS
        while not self.is_stopped and (left := deadline - time.monotonic()) > 0:
            message = self.receive(left)
            body = message.WhichOneof("body") if message else None
            if message and body == "welcome":
                self.epoch.CopyFrom(message.epoch)
                self.heartbeat_seconds = min(max(message.welcome.heartbeat_seconds, 0.01), 60.0)
                self.has_joined = True
                return True
            if message and body == "refusal":
                self.refused(message.refusal)
                return False
        return False

    def recover(self) -> None:
        """After steps that failed: rest, the longer the more there were, until one of a single token passes."""
        while self.num_failed and not self.is_stopped:
            self.receive(min(LEAST_REST_SECONDS * 2 ** min(self.num_failed, 16), MOST_REST_SECONDS))
            try:
                self_test(self.runner)
                return
            except PlanRefused as refusal:
                self.num_failed += 1
                print(f"octavo worker: stays away until it is well: {refusal}", file=sys.stderr, flush=True)

    def wait_until_connected(self) -> bool:
        """IMMEDIATE sockets take no message before the connection stands; wait for it, however long it takes."""
        while not self.is_stopped and not self.socket.poll(100, zmq.POLLOUT):
            self.receive(0.0)
        return not self.is_stopped

    def refused(self, refusal: wire.Refusal) -> None:
        """The scheduler may still count this worker's last stay as alive; then wait until it has noticed."""
        if not self.has_joined or refusal.reason != wire.Refusal.REASON_WORKER_ID:
            raise JoinRefused(f"the scheduler at {self.config.scheduler} refused this worker: {refusal.message}")
        self.receive(HELLO_SECONDS)

    def serve(self) -> None:
        """Execute plans until the scheduler leaves or falls silent, or this worker is stopped."""
        self.announce()
        heard = useful = time.monotonic()  # the last message of this epoch; the last moment no full plan was due
        while not self.is_stopped and time.monotonic() - min(heard, useful) < self.silence:
            message = self.next(0.0 if self.pending else self.next_beat - time.monotonic())
            if message and message.epoch != self.epoch:
                self.counters.stale += 1
            elif message and message.WhichOneof("body") == "goodbye":
                return
            elif message:
                if message.WhichOneof("body") == "plan":
                    self.take(message.plan)
                heard = time.monotonic()  # after a step: what came meanwhile waits in the socket
            self.answer()
            if not self.needs_full:
                useful = time.monotonic()
            if not self.pending and time.monotonic() >= self.next_beat:
                self.heartbeat(wire.Heartbeat.PHASE_IDLE)
        while self.pending:
            self.send_result()
        self.say_goodbye()

    def announce(self) -> None:
        pages, geometry = self.runner.cache.device_pages, self.runner.cache.geometry
        print(
            f"octavo worker: {self.config.worker_id} joined {self.config.scheduler}, "
            f"{pages} pages of {geometry.page_size} tokens ({pages * geometry.page_bytes / 2**30:.2g} GiB)",
            flush=True,
        )

    def take(self, plan: wire.StepPlan) -> None:
        """Begin to execute a plan."""
        if self.needs_full and not plan.full:
            self.counters.ignored_plans += 1
            return
        if not self.pending:
            self.heartbeat(wire.Heartbeat.PHASE_STEP)
        try:
            self.pending.append(self.runner.submit(plan, lambda: self.await_masks(plan.step)))
        except PlanRefused as refusal:
            while self.pending:
                self.send_result()
            self.refuse(plan.step, refusal)
        else:
            self.needs_full = False

    def await_masks(self, step: int) -> bytes:
        """Those of a plan whose logits are there. Empty when the scheduler leaves, or this worker is to.

        What else comes is kept for later, and this worker stays alive, as far as the scheduler can tell.
        """
        self.answer()
        heard = time.monotonic()
        while not self.is_stopped and time.monotonic() - heard < self.silence:
            message = self.receive(self.next_beat - time.monotonic())
            body = message.WhichOneof("body") if message and message.epoch == self.epoch else None
            if message and body == "masks" and message.masks.step == step:
                return message.masks.mask
            if message and body in ("plan", "goodbye"):
                self.behind.append(message)
            if body == "goodbye":
                break
            heard = time.monotonic() if body else heard
            if time.monotonic() >= self.next_beat:
                self.heartbeat(wire.Heartbeat.PHASE_STEP)
        return b""

    def next(self, seconds: float) -> wire.SchedulerMessage | None:
        """What came while a step waited, then what comes."""
        return self.behind.popleft() if self.behind else self.receive(seconds)

    @property
    def silence(self) -> float:
        """Seconds without a word after which the scheduler is gone."""
        return max(SILENT_SECONDS, SILENT_HEARTBEATS * self.heartbeat_seconds)

    def answer(self) -> None:
        """Send what is done. While one plan is computed the next may come; once two are, there is nothing to do but wait."""
        while self.pending and (len(self.pending) == MOST_PENDING or self.pending[0].tokens.is_there()):
            self.send_result()
        if self.pending:
            time.sleep(LOOK_SECONDS)

    def send_result(self) -> None:
        """Of the oldest plan, once it is done."""
        pending = self.pending.popleft()
        try:
            result = self.runner.result(pending)
        except PlanRefused as refusal:
            self.pending.clear()
            self.refuse(pending.step, refusal)
            return
        # A plan without rows says nothing of whether the worker is well.
        self.num_failed = 0 if result.token else self.num_failed
        self.send(wire.WorkerMessage(epoch=self.epoch, result=result))
        self.heartbeat(wire.Heartbeat.PHASE_STEP if self.pending else wire.Heartbeat.PHASE_IDLE)

    def refuse(self, step: int, refusal: PlanRefused) -> None:
        """Ignore plans from now on, until a full one comes."""
        self.needs_full = True
        self.num_failed += refusal.reason in (Reason.FAILED, Reason.OUT_OF_MEMORY)
        nack = wire.Nack(step=step, reason=NACK_REASONS[refusal.reason], message=refusal.message)
        nack.last_step = self.runner.last_step
        self.send(wire.WorkerMessage(epoch=self.epoch, nack=nack))
        self.heartbeat(wire.Heartbeat.PHASE_IDLE)

    def heartbeat(self, phase: wire.Heartbeat.Phase) -> None:
        now = time.monotonic()
        beat = wire.Heartbeat(phase=phase, last_step=self.runner.last_step)
        if self.runner.ops.memory is not None and now >= self.next_memory:
            memory = self.runner.ops.memory()
            beat.device_memory_used, beat.device_memory_total = memory.total - memory.free, memory.total
            self.next_memory = now + MEMORY_SECONDS
        self.send(wire.WorkerMessage(epoch=self.epoch, heartbeat=beat))
        self.next_beat = now + self.heartbeat_seconds

    def say_goodbye(self) -> None:
        self.send(wire.WorkerMessage(epoch=self.epoch, goodbye=wire.Goodbye(message="the worker leaves")))
        self.socket.setsockopt(zmq.LINGER, GOODBYE_MILLISECONDS)

    def send(self, message: wire.WorkerMessage) -> None:
        """Never waits. What cannot be sent now is lost, and the silence that follows ends the stay."""
        with suppress(zmq.Again):
            self.socket.send(message.SerializeToString(), zmq.DONTWAIT)

    def receive(self, seconds: float) -> wire.SchedulerMessage | None:
        """The next readable message, or None after `seconds` or when it is time to end."""
        ready = dict(self.poller.poll(max(0, math.ceil(seconds * 1000))))
        lifeline = self.config.lifeline
        if lifeline is not None and lifeline in ready and not os.read(lifeline, 1):
            self.is_stopped = True
        if self.is_stopped or self.socket not in ready:
            return None
        data = self.socket.recv(zmq.DONTWAIT)
        try:
            return wire.SchedulerMessage.FromString(data)
        except DecodeError:
            self.counters.unreadable += 1
            return None
