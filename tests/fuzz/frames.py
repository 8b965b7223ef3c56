"""Mutated frames of the step protocol against the scheduler's link, loop and core, with a paper worker at work."""

import random
import tempfile
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import zmq
from google.protobuf.message import DecodeError
from octavo.v1 import step_pb2
from octavo_scheduler.core import Core, Settings
from octavo_scheduler.core.audit import violations
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.link import RouterLink
from octavo_scheduler.loop import Loop

from tests.doubles.paper_worker import PaperWorker
from tests.fuzz.findings import Findings
from tests.fuzz.mutate import mutate_message, mutated

FRIEND, STRANGER = b"friend", b"stranger"
BATCH = 256
"""Frames of strangers that come in one turn."""


class Desk:
    """A link whose messages a test lays out: it keeps the plans that were sent."""

    def __init__(self) -> None:
        self.inbox: list[tuple[bytes, bytes]] = []
        self.plans: deque[step_pb2.StepPlan] = deque()
        self.epoch = step_pb2.Epoch()

    def receive(self, timeout: float) -> list[tuple[bytes, bytes]]:
        messages, self.inbox = self.inbox, []
        return messages

    def send(self, peer: bytes, frame: bytes) -> bool:
        if peer == FRIEND:
            message = step_pb2.SchedulerMessage.FromString(frame)
            if message.WhichOneof("body") == "plan":
                self.plans.append(message.plan)
            self.epoch.CopyFrom(message.epoch)
        return True

    def wake(self) -> None:
        pass

    def has_lost_a_peer(self) -> bool:
        return False


class World:
    """A scheduler with a worker of paper that owes the result of a step; two requests run, one waits."""

    def __init__(self, kind: type[Loop] = Loop) -> None:
        self.desk, self.now = Desk(), 0.0
        self.core = Core(Settings())
        self.loop = kind(self.core, self.desk, lambda: self.now, lambda _: None, lambda _: None, boot_id=7)
        self.worker = PaperWorker(page_size=4, pages=12, host_pages=4, max_slots=2)
        self.turn((FRIEND, step_pb2.WorkerMessage(hello=self.worker.hello()).SerializeToString()))
        for name, prompt in (("a", range(6)), ("b", range(20, 27)), ("c", range(40, 43))):
            spec = RequestSpec(id=name, prompt=tuple(prompt), max_tokens=9)
            self.loop.post(lambda core, now, spec=spec: core.submit(spec, now))  # type: ignore[misc]
        self.turn()
        for _ in range(2):
            self.turn((FRIEND, self.result().SerializeToString()))

    def result(self) -> step_pb2.WorkerMessage:
        """Of the oldest plan that was not answered."""
        return step_pb2.WorkerMessage(epoch=self.desk.epoch, result=self.worker.execute(self.desk.plans.popleft()))

    def turn(self, *messages: tuple[bytes, bytes]) -> None:
        self.desk.inbox.extend(messages)
        self.now += 0.001
        self.loop.turn(0.0)

    def picture(self) -> list[Any]:
        """All that input could change, but for the counts of what was no message."""
        core, members = self.core, self.loop.members
        workers = [
            (w.id, w.state, w.device.free[:], w.device.refs[:], w.host.free[:], w.host.refs[:], list(w.free_slots))
            for w in core.workers.values()
        ]
        flights = [[plan.step for plan in w.in_flight] for w in core.workers.values()]
        tokens = [(s.request.spec.id, list(s.tokens)) for w in core.workers.values() for s in w.running]
        seen = [(m.worker, m.epoch, list(m.sent)) for m in members.values()]
        return [workers, flights, tokens, seen, sorted(core.requests), asdict(core.counters)]


def samples(world: World) -> list[step_pb2.WorkerMessage]:
    """A good message of each kind, from the worker that is here."""
    epoch, step = world.desk.epoch, world.desk.plans[0].step
    make = step_pb2.WorkerMessage
    return [
        world.result(),
        make(epoch=epoch, nack=step_pb2.Nack(step=step, reason=step_pb2.Nack.REASON_INVALID, message="no")),
        make(epoch=epoch, heartbeat=step_pb2.Heartbeat(phase=step_pb2.Heartbeat.PHASE_STEP, last_step=step - 1)),
        make(epoch=epoch, goodbye=step_pb2.Goodbye(message="bye")),
        make(hello=PaperWorker().hello("other")),
        make(hello=PaperWorker(page_size=16, pages=40).hello()),
    ]


def is_hello(frame: bytes) -> bool:
    try:
        message = step_pb2.WorkerMessage.FromString(frame)
    except DecodeError:
        return False
    return bool(message.WhichOneof("body") == "hello")


def is_of_this_epoch(frame: bytes, epoch: step_pb2.Epoch) -> bool:
    try:
        sent = step_pb2.WorkerMessage.FromString(frame).epoch
    except DecodeError:
        return False
    return bool((sent.boot_id, sent.counter) == (epoch.boot_id, epoch.counter))


class FrameFuzzer:
    """Runs cases one after the other; what strangers send is gathered and goes through a real socket."""

    def __init__(self, folder: Path, kind: type[Loop] = Loop) -> None:
        self.findings = Findings()
        self.kind = kind
        self.world = World(kind)
        self.samples = samples(World())
        self.encoded = [message.SerializeToString() for message in self.samples]
        self.waiting: list[tuple[int, list[bytes]]] = []
        self.link = RouterLink(f"ipc://{folder}/w")
        self.context = zmq.Context()
        self.dealer = self.context.socket(zmq.DEALER)
        self.dealer.setsockopt(zmq.LINGER, 0)
        self.dealer.connect(self.link.address)

    def close(self) -> None:
        self.dealer.close()
        self.context.term()
        self.link.close()

    def run(self, case: int) -> None:
        self.findings.cases += 1
        draw = random.Random(case)
        frame = self.frame(draw)
        if draw.randrange(4) == 0:
            self.from_the_worker(case, frame)
        elif is_hello(frame):
            self.alone(case, STRANGER, frame)
        else:
            self.waiting.append((case, self.parts(draw, frame)))
            if len(self.waiting) == BATCH:
                self.from_strangers()

    def frame(self, draw: random.Random) -> bytes:
        number = draw.randrange(len(self.samples))
        if draw.randrange(2):
            return mutated(draw, self.encoded[number], self.encoded)
        message = step_pb2.WorkerMessage()
        message.CopyFrom(self.samples[number])
        for _ in range(draw.choice((1, 1, 2, 5))):
            mutate_message(draw, message)
        return message.SerializeToString()

    def parts(self, draw: random.Random, frame: bytes) -> list[bytes]:
        """Mostly one frame, as it should be."""
        if draw.randrange(8):
            return [frame]
        return draw.choice(([b"", frame], [frame, frame], [b""] * 3, [frame] * 40, [frame, b""]))

    def from_strangers(self) -> None:
        """Nothing that they say is heard."""
        for _, parts in self.waiting:
            self.dealer.send_multipart(parts)
        messages: list[tuple[bytes, bytes]] = []
        while len(messages) < len(self.waiting):
            messages += self.link.receive(5.0)
        before, case = self.world.picture(), self.waiting[0][0]
        counted = self.world.loop.num_bad + self.world.loop.num_stale
        self.turn(case, messages)
        if self.world.picture() != before:
            self.findings.state_change(case, f"one of {len(messages)} frames of strangers changed something")
            self.world = World(self.kind)
        elif self.world.loop.num_bad + self.world.loop.num_stale != counted + len(messages):
            self.findings.state_change(case, "a frame of a stranger is missing in the counts")
        self.findings.refused += len(messages)
        self.waiting.clear()

    def from_the_worker(self, case: int, frame: bytes) -> None:
        """What is no message, or of another epoch, changes nothing; what is one breaks no law."""
        before = self.world.picture()
        (member,) = self.world.loop.members.values()
        bad, stale = self.world.loop.num_bad, self.world.loop.num_stale
        member.num_bad = 0  # else it would be sent away for what the cases before did
        self.alone(case, FRIEND, frame)
        is_refused = (self.world.loop.num_bad, self.world.loop.num_stale) != (bad, stale)
        if not is_hello(frame) and not is_of_this_epoch(frame, self.world.desk.epoch):
            is_refused = True
        has_changed = self.world.picture() != before
        if is_refused and has_changed:
            self.findings.state_change(case, "a refused frame of the worker changed something")
        self.findings.refused += is_refused
        self.findings.accepted += not is_refused
        if has_changed:
            self.world = World(self.kind)

    def alone(self, case: int, peer: bytes, frame: bytes) -> None:
        self.turn(case, [(peer, frame)])
        if broken := violations(self.world.core):
            self.findings.state_change(case, "; ".join(broken))
        if peer == STRANGER:
            self.findings.accepted += 1
            self.world = World(self.kind)

    def turn(self, case: int, messages: Sequence[tuple[bytes, bytes]]) -> None:
        try:
            self.world.turn(*messages)
        except Exception as error:
            self.findings.crash(case, error)
            self.world = World(self.kind)


def run(first: int, count: int, kind: type[Loop] = Loop) -> Findings:
    with tempfile.TemporaryDirectory() as folder, closing(FrameFuzzer(Path(folder), kind)) as fuzzer:
        for case in range(first, first + count):
            fuzzer.run(case)
        if fuzzer.waiting:
            fuzzer.from_strangers()
        return fuzzer.findings
