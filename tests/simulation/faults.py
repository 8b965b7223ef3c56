"""What happens to workers, connections and the scheduler's own process."""

from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from octavo.v1 import step_pb2
from octavo_scheduler.core import Core, events
from octavo_scheduler.core.events import Output
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceState, WorkerState
from octavo_scheduler.core.worker import Worker

from tests.simulation.coverage import EARLY_RESULT, STEP_FAULTS
from tests.simulation.paper import Paper
from tests.simulation.scenario import draw_paper
from tests.simulation.station import Station
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

STORM = 80
"""Requests, more than the core may remember of those that have ended."""
EARLY_RATE = 0.3
"""Of plans without masks, in seeds in which they are answered too early."""
NEVER_WELCOME = ("other protocol refused", "absurd pool refused")


def has_ended_in_flight(worker: Worker) -> bool:
    return any(sequence.state is SequenceState.DONE for plan in worker.in_flight for sequence in plan.rows)


class Intruder(Station):
    """Dials once; if it is let in, it leaves."""

    why = ""
    neighbours: Collection[Station] = ()

    def hello(self) -> step_pb2.Hello:
        hello = super().hello()
        if self.why == "absurd pool refused":
            hello.device_pages = 1 << 30
        return hello

    def _joining(self, message: step_pb2.SchedulerMessage, body: str | None) -> None:
        if body == "welcome" and self.why in NEVER_WELCOME:
            raise Violation(f"a worker was let in that should not be: {self.why}")
        super()._joining(message, body)
        if self.is_joined:
            for station in self.neighbours:  # nobody was here, so that from now on its weights are the served ones
                station.digest = self.digest
            self.leave()
            self.kill()

    def _dial_again(self) -> None:
        self.kill()


class Faults:
    def __init__(self, world: "World", draw: Random) -> None:
        self._world, self._draw = world, draw
        self._num_intruders = self._num_storms = 0
        self._next_suspension = 0.0
        everything: dict[str, Callable[[str], bool]] = {
            "connection reset": self._strike,
            "connection dark": self._strike,
            "connection clogged": self._strike,
            "worker killed": self._take_away,
            "worker left": self._take_away,
            "worker restarted at once": self._take_away,
            "worker frozen briefly": self._freeze,
            "worker frozen long": self._freeze,
            "worker drained": self._drain,
            "worker joined late": self._join,
            "twin refused": self._intrude,
            "other weights refused": self._intrude,
            "other protocol refused": self._intrude,
            "absurd pool refused": self._intrude,
            "result from a stranger": self._speak_as_stranger,
            "garbage from a stranger": self._speak_as_stranger,
            "garbage from a member": self._babble,
            "scheduler paused briefly": self._pause,
            "scheduler paused long": self._pause,
            "prefixes flushed": self._post,
            "prefix pinned": self._pin,
            "prefix unpinned": self._pin,
            "unknown request aborted": self._post,
            "request aborted twice": self._post,
            "live id submitted again": self._post,
            "cancel storm": self._storm,
            "everything suspended": self._suspend,
        }
        self._possible = [kind for kind in world.scenario.faults if kind in everything]
        self._do = everything
        self._of_steps = [kind for kind in world.scenario.faults if kind in STEP_FAULTS]
        self._has_early = EARLY_RESULT in world.scenario.faults
        self._has_old_epochs = "result of an old epoch" in world.scenario.faults

    def strike(self) -> None:
        """One fault of a kind that this seed has."""
        if self._possible:
            kind = self._draw.choice(self._possible)
            if self._do[kind](kind):
                self._world.note_fault(kind)

    def strike_fleeting(self) -> None:
        """Sequences are swapped out, or have ended with a row in flight, for a short while only: what may happen to them is
        made to happen then."""
        world, draw = self._world, self._draw
        workers = world.core.workers.values()
        for worker in [w for w in workers if draw.random() < (0.1 if w.swapped else 0.004)]:
            if worker.swapped or has_ended_in_flight(worker):
                self._drain_station(world.stations[worker.id])
        swapped = [sequence for worker in workers for sequence in worker.swapped]
        if swapped and draw.random() < 0.05:
            self._strike_swapped(draw.choice(swapped))

    def _strike_swapped(self, sequence: Sequence) -> None:
        world, draw, name = self._world, self._draw, sequence.request.spec.id
        match draw.randrange(4):
            case 0:
                world.cancel(name)
            case 1 if sequence.num_generated:
                world.stop(name, sequence.branch, draw.randint(0, sequence.num_generated))
            case 2:
                self._post("prefixes flushed")

    def of_step(self, station: Station, plan: step_pb2.StepPlan) -> str | None:
        """The fault that a step meets, if any. Before it, a result of a former stay may come in late."""
        world, draw = self._world, self._draw
        if self._has_old_epochs and not world.is_calm and plan.step in station.old_results and draw.random() < 0.5:
            world.note_fault("result of an old epoch")
            world.network.up(station.connection, station.old_results[plan.step])
        worker = world.core.workers.get(station.name)
        rows = next((p.rows for p in worker.in_flight if p.step == plan.step), ()) if worker else ()
        poisonous = [s.request.spec for s in rows if s.request.spec.id in world.poisonous]
        if poisonous:
            is_memory = len(poisonous[0].prompt) % 2
            world.note_fault("request that memory is too small for" if is_memory else "poisonous request")
            return "step out of memory" if is_memory else "step failed"
        if world.is_calm or not self._of_steps or draw.random() >= world.scenario.step_fault_rate:
            return None
        kind = draw.choice(self._of_steps)
        world.note_fault(kind)
        station.connection.is_blameless &= kind == "logits no numbers"
        return kind

    def is_early(self, station: Station) -> bool:
        """Whether a worker answers a plan before it has the masks for it."""
        world, draw = self._world, self._draw
        if world.is_calm or not self._has_early or draw.random() >= EARLY_RATE:
            return False
        world.note_fault(EARLY_RESULT)
        return True

    # one kind after the other -----------------------------------------------------------------------------------------

    def _member(self) -> Station | None:
        joined = [station for station in self._world.stations.values() if station.is_joined]
        return self._draw.choice(joined) if joined else None

    def _strike(self, kind: str) -> bool:
        station = self._member()
        if station is None:
            return False
        connection, until = station.connection, self._world.timeline.now + self._draw.choice((0.05, 0.6, 0.6, 20.0))
        connection.is_blameless = False
        if kind == "connection reset":
            station.reset()
        elif kind == "connection dark":
            connection.dark_until = until
        else:
            connection.clogged_until = until
        return True

    def _take_away(self, kind: str) -> bool:
        station = self._member()
        if station is None:
            return False
        if kind == "worker left":
            station.leave()
        station.kill()
        absence = 0.0 if kind == "worker restarted at once" else self._draw.choice((0.1, 3.0, 30.0))
        self._world.timeline.after(absence, lambda: self._come_back(station))
        return True

    def _come_back(self, station: Station) -> None:
        if station.is_dead and not self._world.is_calm:
            station.dial()

    def _freeze(self, kind: str) -> bool:
        station = self._member()
        if station is None:
            return False
        station.freeze(
            self._draw.choice((0.1, 4.0)) if kind.endswith("briefly") else self._draw.choice((12.0, 12.0, 70.0))
        )
        return True

    def _drain(self, kind: str) -> bool:
        station = self._member()
        return station is not None and self._drain_station(station)

    def _drain_station(self, station: Station) -> bool:
        if station is self._world.survivor:
            return False

        def drain(core: Core, now: float) -> list[Output]:
            worker = core.workers.get(station.name)
            is_ready = worker is not None and worker.state is WorkerState.READY
            return core.apply(events.Drain(station.name), now) if is_ready else []

        self._world.post(drain)
        self._world.timeline.after(self._draw.choice((0.1, 2.0)), lambda: self._retire(station))
        return True

    def _retire(self, station: Station) -> None:
        if station.is_joined:
            station.leave()
            station.kill()
            self._world.timeline.after(0.1, lambda: self._come_back(station))

    def _join(self, kind: str) -> bool:
        world = self._world
        if len(world.stations) < 8:
            world.add_station(
                f"late{len(world.stations)}",
                draw_paper(self._draw, holds=0, has_masks=world.scenario.has_masks and self._draw.random() < 0.75),
            ).dial()
            return True
        return False

    def _intrude(self, kind: str) -> bool:
        world, station = self._world, self._member()
        if station is None:
            return False
        self._num_intruders += 1
        name = station.name if kind == "twin refused" else f"intruder{self._num_intruders}"
        paper = Paper(
            page_size=1,
            device_pages=4,
            host_pages=0,
            max_slots=1,
            max_step_tokens=8,
            max_context=12,
            needs_zeroed_pages=False,
        )
        intruder = world.make_station(
            name,
            paper,
            make=Intruder,
            digest=b"other %d" % self._num_intruders if kind == "other weights refused" else station.digest,
            protocol_major=2 if kind == "other protocol refused" else 1,
        )
        assert isinstance(intruder, Intruder)
        intruder.why, intruder.neighbours = kind, world.stations.values()
        intruder.dial()
        return True

    def _speak_as_stranger(self, kind: str) -> bool:
        world, station = self._world, self._member()
        if station is None:
            return False
        stranger = world.network.connect(station)
        step = station.paper.last_step + 1
        forged = step_pb2.WorkerMessage(epoch=station.epoch, result=step_pb2.StepResult(step=step, token=bytes(4)))
        frame = forged.SerializeToString()
        world.network.up(stranger, frame if kind == "result from a stranger" else world.network.garbage(frame))
        world.network.close(stranger)
        return True

    def _babble(self, kind: str) -> bool:
        station = self._member()
        if station is None:
            return False
        station.connection.is_blameless = False
        for _ in range(self._draw.choice((1, 1, 12))):
            self._world.network.up(station.connection, self._world.network.garbage(b"\x0a\x10\x09"))
        return True

    def _pause(self, kind: str) -> bool:
        short = kind.endswith("briefly")
        self._world.network.pause = self._draw.choice((0.05, 3.0)) if short else self._draw.choice((6.0, 9.0, 90.0))
        return True

    def _suspend(self, kind: str) -> bool:
        """Not again before everybody has spoken, or nobody would be heard for good."""
        if self._world.timeline.now < self._next_suspension:
            return False
        self._world.network.stand_still(self._draw.choice((3.0, 90.0)))
        self._next_suspension = self._world.timeline.now + 2.0
        return True

    def _storm(self, kind: str) -> bool:
        """Many requests come and are cancelled at once."""
        if self._num_storms < 1:
            self._num_storms += 1
            for _ in range(STORM):
                self._world.cancel(self._world.ask_briefly())
            return True
        return False

    def _pin(self, kind: str) -> bool:
        """Some live request's prompt is what the operator pins."""
        draw, world = self._draw, self._world
        name, live = draw.choice(("a", "b")), list(world.oracle.live.values())
        if not live:
            return False
        spec = draw.choice(live).spec
        pin = events.Pin(name=name, tokens=spec.prompt[: draw.randint(1, 9)], salt=spec.salt)
        event = pin if kind == "prefix pinned" else events.Unpin(name)
        world.post(lambda core, now: core.apply(event, now))
        return True

    def _post(self, kind: str) -> bool:
        world = self._world
        live = list(world.oracle.live.values())
        if kind == "prefixes flushed":
            world.post(lambda core, now: core.apply(events.Flush(), now))
        elif kind == "unknown request aborted":
            world.post(lambda core, now: core.abort("nobody", now))
        elif not live:
            return False
        elif kind == "request aborted twice":
            world.cancel(live[0].spec.id)
            world.cancel(live[0].spec.id)
        else:
            again = replace(self._draw.choice(live).spec, prompt=(1,))
            world.post(lambda core, now: world.submit_again(again, now))
        return True
