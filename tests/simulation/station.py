"""A simulated worker process as the scheduler sees it: dials, greets, executes, beats, falls silent, dials again.

It follows the real worker's link to the letter; what a fault does to it is something that can happen to a real process.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from google.protobuf.message import DecodeError
from octavo.v1 import step_pb2

from tests.simulation.network import Connection, Network
from tests.simulation.paper import VOCAB_SIZE, OutOfSequence, Paper
from tests.simulation.timeline import Timeline

HEARTBEAT_SECONDS = 0.5
SILENT_SECONDS = 10.0
HELLO_SECONDS = 5.0
RESTART_SECONDS = 1.0

Nack = step_pb2.Nack
Heartbeat = step_pb2.Heartbeat


@dataclass(frozen=True)
class Answer:
    """What a worker truly answered to a plan; `is_sound` unless a fault spoilt it."""

    tokens: tuple[int, ...]
    is_sound: bool = True


class StepFates(Protocol):
    def of_step(self, station: "Station", plan: step_pb2.StepPlan) -> str | None:
        """None, or the fault that the step meets."""
        ...

    def is_early(self, station: "Station") -> bool:
        """Whether it answers a plan before it has the masks for it."""
        ...


class Station:
    def __init__(
        self,
        name: str,
        paper: Paper,
        *,
        timeline: Timeline,
        network: Network,
        draw: Random,
        step_seconds: float,
        fates: StepFates,
        digest: bytes = b"paper",
        protocol_major: int = 1,
    ) -> None:
        self.name, self.paper, self.digest, self.protocol_major = name, paper, digest, protocol_major
        self.step_seconds = step_seconds
        self.answers: dict[tuple[int, int], Answer] = {}
        """What was answered, by counter of the epoch and step."""
        self.is_dead = True
        self.is_joined = False
        self.has_joined = False
        self.old_results: dict[int, bytes] = {}
        """Frames of former stays, by step."""
        self.refusals: list[int] = []
        self.connection = network.connect(self)
        self.epoch = step_pb2.Epoch()
        self._timeline, self._network, self._draw, self._fates = timeline, network, draw, fates
        self._results: dict[int, bytes] = {}
        self._stay = 0
        self._inbox: deque[bytes] = deque()
        self._open: step_pb2.StepPlan | None = None
        """A plan whose masks are still to come. Plans behind it wait."""
        self._behind: deque[step_pb2.StepPlan] = deque()
        self._is_busy = False
        self._needs_full = False
        self._frozen_until = 0.0
        self._heard = self._useful = self._last_beat = 0.0

    # the course of a stay ---------------------------------------------------------------------------------------------

    def dial(self) -> None:
        """A fresh connection and an empty worker."""
        self._forget()
        self.is_dead = False
        self.connection = self._network.connect(self)
        self._network.up(self.connection, step_pb2.WorkerMessage(hello=self.hello()).SerializeToString())
        self._later(HELLO_SECONDS, self._dial_again)

    def hello(self) -> step_pb2.Hello:
        return self.paper.hello(self.name, self.digest, self.protocol_major)

    def leave(self) -> None:
        """Says goodbye; what was on its way out still gets there."""
        if self.is_joined:
            self._send(step_pb2.WorkerMessage(goodbye=step_pb2.Goodbye(message="the worker leaves")))
        self.connection.is_blameless = False
        self._network.close(self.connection)

    def kill(self) -> None:
        self.connection.is_blameless = False
        self._network.close(self.connection)
        self._forget()
        self.is_dead = True
        self.has_joined = False

    def reset(self) -> None:
        """The transport dials by itself and gets a new routing id; worker and scheduler know nothing of it."""
        self.connection.is_blameless = False
        self._network.close(self.connection)
        self.connection = self._network.connect(self)
        self.connection.is_blameless = False

    def freeze(self, seconds: float) -> None:
        self.connection.is_blameless = False
        self._frozen_until = self._timeline.now + seconds
        self._later(seconds, self._thaw)

    def _thaw(self) -> None:
        if not self._is_silent():
            self._read()

    def _forget(self) -> None:
        self._stay += 1
        self.paper.reset()
        self.is_joined = False
        self._is_busy = self._needs_full = False
        self._frozen_until = 0.0
        self._inbox.clear()
        self._open = None
        self._behind.clear()
        if self._results:
            self.old_results, self._results = self._results, {}

    def _dial_again(self) -> None:
        if not self.is_joined:
            self.connection.is_blameless = False
            self._network.close(self.connection)
            self.dial()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        """Happens unless the stay has ended by then. A frozen process is late."""
        stay = self._stay

        def act() -> None:
            if self._stay != stay:
                return
            if self._frozen_until > self._timeline.now:
                self._timeline.at(self._frozen_until, act)
            else:
                action()

        self._timeline.after(seconds, act)

    # words in and out -------------------------------------------------------------------------------------------------

    def hear(self, connection: Connection, frame: bytes) -> None:
        if connection is self.connection and connection.is_open and not self.is_dead:
            self._inbox.append(frame)
            self._read()

    def _read(self) -> None:
        while self._inbox and not self._is_busy and self._frozen_until <= self._timeline.now:
            self._take(self._inbox.popleft())

    def _take(self, frame: bytes) -> None:
        message = step_pb2.SchedulerMessage()
        try:
            message.ParseFromString(frame)
        except DecodeError:
            return
        body = message.WhichOneof("body")
        if not self.is_joined:
            self._joining(message, body)
            return
        if message.epoch != self.epoch:
            return
        if body == "goodbye":
            self._network.close(self.connection)
            self._forget()
            self._later(RESTART_SECONDS, self._dial_again)
            return
        if body == "plan":
            self._behind.append(message.plan)
            self._go_on()
        if body == "masks" and self._open is not None and message.masks.step == self._open.step:
            plan, self._open = self._open, None
            self._begin(plan, self._execute(plan, message.masks.mask))
        self._heard = self._timeline.now
        self._note_useful()

    def _joining(self, message: step_pb2.SchedulerMessage, body: str | None) -> None:
        if body == "welcome":
            self.epoch.CopyFrom(message.epoch)
            self.is_joined = self.has_joined = True
            self._heard = self._useful = self._timeline.now
            self._later(HEARTBEAT_SECONDS, self._beat)
        elif body == "refusal":
            self.refusals.append(message.refusal.reason)
            may_wait = self.has_joined and message.refusal.reason == step_pb2.Refusal.REASON_WORKER_ID
            self._forget()
            self.is_dead = not may_wait
            if may_wait:
                self._later(HELLO_SECONDS, self._dial_again)

    def _send(self, message: step_pb2.WorkerMessage) -> bytes:
        message.epoch.CopyFrom(self.epoch)
        frame: bytes = message.SerializeToString()
        self._network.up(self.connection, frame)
        return frame

    # signs of life ----------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        if not self._is_busy:
            if self._is_silent():
                return
            if self._timeline.now - self._last_beat >= HEARTBEAT_SECONDS:
                self._heartbeat(Heartbeat.PHASE_IDLE)
        self._later(max(self._last_beat + HEARTBEAT_SECONDS - self._timeline.now, 0.01), self._beat)

    def _heartbeat(self, phase: "Heartbeat.Phase") -> None:
        self._last_beat = self._timeline.now
        self._send(step_pb2.WorkerMessage(heartbeat=Heartbeat(phase=phase, last_step=self.paper.last_step)))

    def _note_useful(self) -> None:
        if not self._needs_full:
            self._useful = self._timeline.now

    def _is_silent(self) -> bool:
        """Nothing heard for too long, or nothing of use: leaves and dials again."""
        if not self.is_joined or self._timeline.now - min(self._heard, self._useful) < SILENT_SECONDS:
            self._note_useful()
            return False
        self.leave()
        self.dial()
        return True

    # steps ------------------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """The next plan, if none is at work or open."""
        while self._behind and not self._is_busy and self._open is None:
            plan = self._behind.popleft()
            if self._needs_full and not plan.full:
                continue
            self._heartbeat(Heartbeat.PHASE_STEP)
            if not plan.rows.masked_row or plan.rows.mask:
                self._begin(plan, self._execute(plan))
            elif self._fates.is_early(self):
                self.connection.is_blameless = False
                self._begin(plan, self._execute(plan, b""))
            else:
                self._open = plan

    def _begin(self, plan: step_pb2.StepPlan, answer: step_pb2.WorkerMessage) -> None:
        self._is_busy = True
        self._later(self.step_seconds * (0.5 + self._draw.random()), lambda: self._finish(plan.step, answer))

    def _execute(self, plan: step_pb2.StepPlan, late: bytes | None = None) -> step_pb2.WorkerMessage:
        fate = self._fates.of_step(self, plan)
        if fate == "plan called invalid":
            return self._nack(plan, Nack.REASON_INVALID)
        if fate in ("step failed", "step out of memory"):
            self.paper.slots.clear()
            return self._nack(plan, Nack.REASON_FAILED if fate == "step failed" else Nack.REASON_OUT_OF_MEMORY)
        last_step = self.paper.last_step
        try:
            tokens = self.paper.execute(plan, late)
        except OutOfSequence:
            return self._nack(plan, Nack.REASON_OUT_OF_SEQUENCE)
        if fate == "step failed half done":
            self.paper.slots.clear()
            self.paper.last_step = last_step
            return self._nack(plan, Nack.REASON_FAILED)
        answer = Answer(tuple(tokens))
        if fate == "logits no numbers" and tokens:
            answer = Answer(tuple(-1 if self._draw.random() < 0.3 else token for token in tokens))
        scores = self.paper.scores
        if fate == "result malformed":
            is_cut = bool(scores) and self._draw.random() < 0.5
            answer = Answer(tuple(tokens) if is_cut else self._spoilt(tokens), is_sound=False)
            scores = scores[8:] if is_cut else scores
        self.answers[self.epoch.counter, plan.step] = answer
        self._needs_full = False
        swapped = len(plan.swap_out.source) + len(plan.swap_in.source)
        result = step_pb2.StepResult(step=plan.step, token=_packed(answer.tokens), swapped_bytes=16 * swapped)
        result.logprobs = scores
        result.swap_seconds = 1e-6 * swapped * self._draw.choice((0.1, 1.0, 10.0))
        return step_pb2.WorkerMessage(result=result)

    def _spoilt(self, tokens: list[int]) -> tuple[int, ...]:
        match self._draw.randrange(3):
            case 0:
                return (*tokens, 0)
            case 1 if tokens:
                return (*tokens[1:], VOCAB_SIZE)
            case 2 if tokens:
                return (*tokens[1:], -2)
        return (*tokens, 0)

    def _nack(self, plan: step_pb2.StepPlan, reason: "Nack.Reason") -> step_pb2.WorkerMessage:
        self._needs_full = True
        self.connection.is_blameless = False
        return step_pb2.WorkerMessage(nack=Nack(step=plan.step, reason=reason, last_step=self.paper.last_step))

    def _finish(self, step: int, answer: step_pb2.WorkerMessage) -> None:
        self._is_busy = False
        frame = self._send(answer)
        if answer.WhichOneof("body") == "result":
            self._results[step] = frame
        self._heartbeat(Heartbeat.PHASE_IDLE)
        self._heard = self._timeline.now
        self._note_useful()
        self._go_on()
        self._read()


def _packed(tokens: tuple[int, ...]) -> bytes:
    return b"".join([token.to_bytes(4, "little", signed=True) for token in tokens])
