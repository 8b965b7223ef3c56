"""The thread that runs the core: messages in, events applied, plans out.

A turn: read what workers sent and what the front posted, apply it with the current time, let every worker plan as long as it
takes plans, hand all outputs to the front at once. Link and clock are arguments, so that tests replace just these two.
"""

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

from octavo_scheduler import wire
from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Lost, Nack, Output, Tick
from octavo_scheduler.member import LEAST_STEP_LEASE_SECONDS, Member, objection
from octavo_scheduler.tally import StepTally
from octavo_scheduler.wire import BadMessage, Epoch, Greeting

log = logging.getLogger("octavo.scheduler")

HEARTBEAT_SECONDS = 0.5
"""How often the scheduler says it is alive, which is also how soon it notices a closed connection."""
PROBE_SECONDS, BETWEEN_PROBES_SECONDS = 0.1, 0.01
"""For how long and how often workers are tried after a connection was closed: it does not say whose it was."""
MOST_BAD_MESSAGES = 10
"""Unreadable messages of one peer before it is dropped."""

Command = Callable[[Core, float], list[Output]]


class Link(Protocol):
    """What the loop needs of a transport."""

    def receive(self, timeout: float) -> list[tuple[bytes, bytes]]: ...
    def send(self, peer: bytes, frame: bytes) -> bool: ...
    def wake(self) -> None: ...
    def has_lost_a_peer(self) -> bool:
        """Whether a connection was closed since this was asked last."""


class Loop:
    """Owns the core. All but `post` runs in one thread."""

    def __init__(
        self,
        core: Core,
        link: Link,
        clock: Callable[[], float],
        deliver: Callable[[list[Output]], None],
        on_ready: Callable[[bool], object],
        boot_id: int,
        vocab_size: int = 0,
        after_turn: Callable[[], object] = lambda: None,
        tally: StepTally | None = None,
    ) -> None:
        """`deliver` gets all outputs of a turn; `on_ready` hears when the first worker is here and when the last is gone.
        `after_turn` is called when the plans of a turn are out.

        A worker whose vocabulary is smaller than `vocab_size` is refused.
        """
        self.core = core
        self.members: dict[bytes, Member] = {}
        self.weights_digest: bytes | None = None
        self.num_stale = 0
        self.num_bad = 0
        self.tally = tally or StepTally()
        self._link = link
        self._clock = clock
        self._deliver = deliver
        self._on_ready = on_ready
        self._is_ready = False
        self._boot_id = boot_id
        self._vocab_size = vocab_size
        self._after_turn = after_turn
        self._num_welcomed = 0
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._last_turn = clock()
        self._last_heartbeat = self._last_turn
        self._probe_until = self._last_turn
        self._is_stopped = False

    def post(self, command: Command) -> None:
        """Has the loop run `command` in its next turn. May be called by any thread."""
        self._commands.put(command)
        self._link.wake()

    def stop(self) -> None:
        """Ends `run` after the turn at hand. May be called by any thread."""
        self._is_stopped = True
        self._link.wake()

    def run(self) -> None:
        """Turns until stopped, then says goodbye to the workers. Whatever ends it otherwise is raised."""
        while not self._is_stopped:
            self.turn(self._patience())
        for member in self.members.values():
            self._link.send(member.peer, wire.encode_goodbye(member.epoch, "the scheduler stops"))

    def _patience(self) -> float:
        """Seconds until something has to be done even if nothing is heard."""
        now = self._clock()
        until = min(
            (member.lease_end - now for member in self.members.values() if member.sent), default=HEARTBEAT_SECONDS
        )
        probe = BETWEEN_PROBES_SECONDS if now < self._probe_until else HEARTBEAT_SECONDS
        return max(0.0, min(probe, until, self.core.next_deadline - now))

    def turn(self, timeout: float) -> None:
        messages = self._link.receive(timeout)
        now = self._clock()
        self._forgive(now)
        outputs: list[Output] = []
        for peer, frame in messages:
            outputs += self._receive(peer, frame, now)
        outputs += self._run_commands(now)
        outputs += self.core.apply(Tick(), now)
        self._report_violations()
        outputs += self._watch(now)
        outputs += self._plan(now)
        if outputs:
            self._deliver(outputs)
            self.tally.delivered(outputs, now)  # streams do not wait for it
        if self._is_ready != bool(self.members):
            self._is_ready = bool(self.members)
            self._on_ready(self._is_ready)
        self._after_turn()

    def _report_violations(self) -> None:
        findings = self.core.auditor.findings
        for finding in findings:
            log.error("%s: mended", finding)
        findings.clear()

    def _run_commands(self, now: float) -> list[Output]:
        outputs: list[Output] = []
        while True:
            try:
                command = self._commands.get_nowait()
            except Empty:
                return outputs
            outputs += command(self.core, now)

    def _plan(self, now: float) -> list[Output]:
        """Masks and plans for all members; once more where one is lost on the way, whose work others may have."""
        outputs: list[Output] = []
        num_members = 0
        while num_members != len(self.members):
            num_members = len(self.members)
            for member in list(self.members.values()):
                outputs += self._plan_for(member, now)
        return outputs

    def _plan_for(self, member: Member, now: float) -> list[Output]:
        began = self._clock()
        if not self._send_masks(member, now):
            return self._lose(member, now, "its connection is closed")
        while (plan := self.core.plan(member.worker, now)) is not None:
            frame = wire.encode_plan(member.epoch, plan)
            ready = self._clock()
            if not self._link.send(member.peer, frame):
                return self._lose(member, now, "its connection is closed")
            member.note_sent(plan, ready - began, now)
            self.tally.planned(plan, self.core.workers[member.worker].joined.page_bytes)
            began = ready
        return []

    def _send_masks(self, member: Member, now: float) -> bool:
        """Those of plans that are waiting for them. Whether they were taken."""
        while (plan := self.core.open_masks(member.worker)) is not None:
            if not self._link.send(member.peer, wire.encode_masks(member.epoch, plan)):
                return False
            member.note_masks(plan.step, now)
        return True

    def _receive(self, peer: bytes, frame: bytes, now: float) -> list[Output]:
        member = self.members.get(peer)
        try:
            epoch, body = wire.decode(frame, member.worker if member else "")
        except BadMessage as error:
            return self._note_bad(member, now, str(error))
        if isinstance(body, Greeting):
            return self._greet(peer, body, now)
        if member is None or epoch != member.epoch:
            self.num_stale += 1
            if member is None:  # an earlier scheduler welcomed it, or it was given up: it is to dial anew
                self._link.send(peer, wire.encode_goodbye(epoch, "the scheduler does not know this stay"))
            return []
        member.heard_at = now
        match body:
            case wire.StepReport():
                return self._step_done(member, body, now)
            case wire.Refused():
                return self._refused(member, body, now)
            case wire.Alive():
                return self._alive(member, body, now)
            case wire.Leaving():
                return self._lose(member, now, f"it left: {body.message}", is_crash=False)
        return []

    def _alive(self, member: Member, beat: wire.Alive, now: float) -> list[Output]:
        member.memory = beat.memory or member.memory
        if member.has_lost(beat.last_step + 1):
            return self._lose(member, now, f"the result of step {member.sent[0].step} got lost")
        return []

    def _step_done(self, member: Member, report: wire.StepReport, now: float) -> list[Output]:
        if member.has_lost(report.done.step):
            return self._lose(member, now, f"the result of step {member.sent[0].step} got lost")
        if member.is_owed_masks(report.done.step):
            early = wire.Refused(Nack(member.worker, report.done.step), "it has an answer, and not its masks")
            return self._refused(member, early, now)
        member.note_done(report, now)
        if report.swapped_bytes and report.swap_seconds > 0:
            self.tally.swap_seconds += report.swap_seconds
            self.core.apply(member.rates(report), now)
        return self._settle(member, self.core.apply(report.done, now), now)

    def _refused(self, member: Member, refused: wire.Refused, now: float) -> list[Output]:
        """The core takes back all that was in flight, and gives the worker up when this happens time and again."""
        log.warning("worker %s refused step %d: %s", member.worker, refused.nack.step, refused.reason)
        return self._settle(member, self.core.apply(refused.nack, now), now)

    def _settle(self, member: Member, outputs: list[Output], now: float) -> list[Output]:
        """After a step was done or failed: what is still owed, and whether the core has given the worker up."""
        member.keep(self.core.workers.get(member.worker), now)
        if member.worker not in self.core.workers:
            outputs += self._lose(member, now, "too many steps failed")
        return outputs

    def _note_bad(self, member: Member | None, now: float, problem: str) -> list[Output]:
        self.num_bad += 1
        if member is None:
            return []
        member.num_bad += 1
        if member.num_bad < MOST_BAD_MESSAGES:
            return []
        return self._lose(member, now, problem)

    def _greet(self, peer: bytes, greeting: Greeting, now: float) -> list[Output]:
        outputs: list[Output] = []
        worker = greeting.joined.worker
        for member in [m for m in self.members.values() if m.worker == worker or m.peer == peer]:
            if member.peer == peer or not self._link.send(member.peer, wire.encode_heartbeat(member.epoch)):
                outputs += self._lose(member, now, "it dials again")
        is_served = bool(self.members or self.core.requests)
        weights_digest = self.weights_digest if is_served else None  # else any weights may be the ones served next
        refusal = objection(greeting, weights_digest, self._vocab_size, {m.worker for m in self.members.values()})
        if refusal is not None:
            log.warning("worker %s is refused: %s", worker, refusal[1])
            self._link.send(peer, wire.encode_refusal(*refusal))
            return outputs
        self.weights_digest = greeting.weights_digest
        self._num_welcomed += 1
        member = Member(worker, peer, Epoch(self._boot_id, self._num_welcomed), now)
        minor = min(wire.PROTOCOL_MINOR, greeting.protocol_minor)
        if not self._link.send(peer, wire.encode_welcome(member.epoch, HEARTBEAT_SECONDS, minor)):
            return outputs
        self.members[peer] = member
        self.tally.workers_joined += 1
        log.info(
            "worker %s joined: %d pages of %d tokens", worker, greeting.joined.device_pages, greeting.joined.page_size
        )
        return outputs + self.core.apply(greeting.joined, now)

    def _forgive(self, now: float) -> None:
        """If this very process was stopped for a while, nobody is blamed for it, and no step is said to have taken so long:
        the lease of the next one follows from that."""
        if now - self._last_turn > LEAST_STEP_LEASE_SECONDS / 2:
            for member in self.members.values():
                member.forgive(now)
        self._last_turn = now

    def _watch(self, now: float) -> list[Output]:
        """Heartbeats out; silent workers lost."""
        outputs: list[Output] = []
        for member in [each for each in self.members.values() if now >= each.lease_end]:
            outputs += self._lose(member, now, "its step takes too long" if member.sent else "it is silent")
        if self._link.has_lost_a_peer():
            self._probe_until = now + PROBE_SECONDS
        if now - self._last_heartbeat < HEARTBEAT_SECONDS and now >= self._probe_until:
            return outputs
        self._last_heartbeat = now
        for member in list(self.members.values()):
            if not self._link.send(member.peer, wire.encode_heartbeat(member.epoch)):
                outputs += self._lose(member, now, "its connection is closed")
        return outputs

    def _lose(self, member: Member, now: float, why: str, *, is_crash: bool = True) -> list[Output]:
        log.warning("worker %s is gone: %s", member.worker, why)
        del self.members[member.peer]
        self._link.send(member.peer, wire.encode_goodbye(member.epoch, why))  # if it is alive it may come back at once
        return self.core.apply(Lost(member.worker, is_crash), now)
