"""One run: everything that a seed draws, until all requests have ended and nothing is left.

First the weather is bad, then calm: faults stop, one worker that can hold every request stays, and within a bound that
follows from the requests everything must have ended and every page be free.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from unittest.mock import patch

from octavo_scheduler.core import Core, admission, events, placement, policy
from octavo_scheduler.core.events import Committed, Output
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.core.states import SequenceState
from octavo_scheduler.loop import Loop

from tests.simulation.coverage import Coverage
from tests.simulation.faults import Faults
from tests.simulation.network import Network
from tests.simulation.oracle import Oracle
from tests.simulation.paper import VOCAB_SIZE, Paper, checksum, mask_of
from tests.simulation.scenario import SLOW_MASK_SECONDS, Arrivals, Fate, draw_scenario
from tests.simulation.station import HELLO_SECONDS, RESTART_SECONDS, SILENT_SECONDS, Station
from tests.simulation.timeline import Timeline
from tests.simulation.vigil import Vigil
from tests.simulation.violation import Stuck, Violation
from tests.simulation.watched import Stay, WatchedCore

RECOVERY_SECONDS = 60.0 + 3 * (SILENT_SECONDS + HELLO_SECONDS + RESTART_SECONDS) + 90.0
"""Until the loop has noticed any fault and the worker has dialled again: the longest lease, some silences, and the longest
freeze that may have begun just before."""
STEPS_PER_TOKEN = 4
"""Steps that a token may take, one request at a time: every second one may belong to a suspect, others are lost to
preemptions and to the last failures."""
LEAST_EVENTS, MOST_EVENTS = 300, 100_000
MOST_LIVE = 6
"""Requests alive when no more are made."""
MOST_LEFT = 2
"""Requests that go on where, in the end, most callers hang up."""


@dataclass(frozen=True)
class Outcome:
    seed: int
    num_events: int
    num_plans: int
    virtual_seconds: float


class World:
    def __init__(self, seed: int, *, is_liveness: bool = False, coverage: Coverage | None = None) -> None:
        draw = Random(f"{seed} {is_liveness}")
        self.seed = seed
        self.coverage = coverage or Coverage()
        self.scenario = scenario = draw_scenario(draw, is_liveness=is_liveness)
        self.is_liveness = is_liveness
        self.timeline = Timeline()
        self.network = Network(self.timeline, draw, scenario.weather, self.coverage)
        self.network.turn_seconds = scenario.turn_seconds
        self.network.before_turn = self._before_turn
        self.oracle = Oracle(scenario.settings.max_faults, self._capacities)
        self.core = WatchedCore(scenario.settings, self.oracle, self.coverage, self._stay)
        self.loop = Loop(
            self.core, self.network, self.timeline.clock, self._deliver, lambda is_ready: None, 7, VOCAB_SIZE
        )
        self.stations: dict[str, Station] = {}
        self.poisonous: set[str] = set()
        self.is_calm = False
        self.tell: Callable[[str], None] | None = None
        self._draw = draw
        self._faults = Faults(self, draw)
        self._vigil = Vigil(self.loop, self.network, self.timeline)
        self._arrivals = Arrivals(draw, scenario)
        self._fates: dict[str, Fate] = {}
        self._specs: dict[str, RequestSpec] = {}
        self._num_commands = 0
        self._calm_until = 0.0
        self._next_strike = draw.expovariate(1 / scenario.fault_interval)
        self._is_flushed = False
        self.survivor = self.add_station("survivor", scenario.survivor)
        self._set_up()

    def _set_up(self) -> None:
        scenario, timeline = self.scenario, self.timeline
        others = [self.add_station(f"w{number}", paper) for number, paper in enumerate(scenario.others)]
        for number, station in enumerate(others, 1):
            timeline.at(
                number * scenario.others_join_at, partial(self._bring, station, scenario.steps_until_others_join)
            )
        timeline.at(scenario.survivor_joins_at, self._bring_survivor)
        self._ask()

    def _ask(self) -> None:
        """Some requests, and some time for faults; again, until enough has happened."""
        scenario, timeline = self.scenario, self.timeline
        if self.num_events >= LEAST_EVENTS:
            self._calm_down()
            return
        last = timeline.now
        for spec, fate in self._arrivals.wave(timeline.now) if len(self._unended()) < MOST_LIVE else ():
            self._fates[spec.id], self._specs[spec.id] = fate, spec
            if fate.is_poisonous:
                self.poisonous.add(spec.id)
            last = fate.arrives_at
            timeline.at(last, lambda spec=spec, fate=fate: self._arrive(spec, fate))  # type: ignore[misc]
        timeline.at(last + scenario.step_seconds * self._draw.choice((5, 20, 50)), self._ask)

    def run(self) -> Outcome:
        """Raises Violation (and whatever the production code raises)."""
        # A simulation has few tenants; those that went shall be forgotten all the same. And its sequences are short.
        with (
            patch.object(policy, "MOST_IDLE_ACCOUNTS", 0),
            patch.object(placement, "ROW_TOKENS", self.scenario.row_tokens),
            patch.object(admission, "ROW_TOKENS", self.scenario.row_tokens),
        ):
            self.loop.run()
        return Outcome(self.seed, self.num_events, self.core.num_plans, self.timeline.now)

    @property
    def num_events(self) -> int:
        """Messages received, commands run, plans sent, ticks applied."""
        return self.network.num_received + self._num_commands + self.core.num_plans + self.core.num_ticks

    # stations ---------------------------------------------------------------------------------------------------------

    def add_station(self, name: str, paper: Paper) -> Station:
        digest = self.survivor.digest if self.stations else b"paper"
        self.stations[name] = station = self.make_station(name, paper, digest=digest)
        return station

    def make_station(
        self,
        name: str,
        paper: Paper,
        *,
        make: type[Station] = Station,
        digest: bytes = b"paper",
        protocol_major: int = 1,
    ) -> Station:
        return make(
            name,
            paper,
            timeline=self.timeline,
            network=self.network,
            draw=self._draw,
            step_seconds=self.scenario.step_seconds,
            fates=self._faults,
            digest=digest,
            protocol_major=protocol_major,
        )

    def _bring_survivor(self) -> None:
        """Whatever ends its process, it is started again."""
        if self.survivor.is_dead:
            self.survivor.dial()
        if self.is_calm:
            self.timeline.after(RESTART_SECONDS, self._bring_survivor)

    def _bring(self, station: Station, patience: int) -> None:
        """So many steps are waited for a sequence that lies swapped out while nobody waits: it may move then."""
        if patience and (self.core.waiting or not any(worker.swapped for worker in self.core.workers.values())):
            self.timeline.after(self.scenario.step_seconds, partial(self._bring, station, patience - 1))
        else:
            station.dial()

    def _capacities(self) -> set[int]:
        return {self.scenario.capacity(station.paper) for station in self.stations.values()}

    def _stay(self, name: str) -> Stay:
        """What is known of the worker that the loop has just welcomed."""
        member = next(member for member in self.loop.members.values() if member.worker == name)
        connection = self.network.connections[member.peer]
        station = connection.hearer
        assert isinstance(station, Station)

        def answer(step: int) -> tuple[tuple[int, ...], bool] | None:
            given = station.answers.get((member.epoch.counter, step))
            return None if given is None else (given.tokens, given.is_sound)

        return Stay(answer, lambda: connection.is_blameless)

    # the front's side -------------------------------------------------------------------------------------------------

    def post(self, command: Callable[[Core, float], list[Output]]) -> None:
        self._num_commands += 1
        self.loop.post(command)

    def _arrive(self, spec: RequestSpec, fate: Fate) -> None:
        def submit(core: Core, now: float) -> list[Output]:
            self.oracle.ask(spec, now)
            return core.submit(spec, now)

        self.post(submit)
        for branch in range(spec.n if spec.is_constrained else 0):
            self._mask(spec, branch, 0, checksum(spec.prompt))
        if fate.cancelled_after is not None:
            self.timeline.after(fate.cancelled_after, lambda: self.cancel(spec.id))

    def _mask(self, spec: RequestSpec, branch: int, position: int, state: int) -> None:
        """Masks come late, sometimes after later ones, sometimes twice."""
        is_unknown = self._fates[spec.id].unknown_after == position
        masked = events.Masked(spec.id, branch, position, None if is_unknown else mask_of(state))

        def mask(core: Core, now: float) -> list[Output]:
            self.oracle.asked[spec.id].has_no_mask |= is_unknown
            return core.apply(masked, now)

        for _ in range(self._draw.choice((1, 1, 1, 2))):
            seconds = self.scenario.mask_seconds * self._draw.expovariate(1.0)
            if self._draw.random() < self.scenario.slow_mask_rate:
                seconds += SLOW_MASK_SECONDS
            self.timeline.after(seconds, lambda: self.post(mask))

    def ask_briefly(self) -> str:
        """A request that is about to be cancelled."""
        spec = replace(self._arrivals.request(self.timeline.now), deadline=self.timeline.now + 1e6)
        self._fates[spec.id], self._specs[spec.id] = Fate(self.timeline.now), spec
        self._arrive(spec, self._fates[spec.id])
        return spec.id

    def cancel(self, name: str) -> None:
        def abort(core: Core, now: float) -> list[Output]:
            if name in self.oracle.asked:
                self.oracle.asked[name].is_cancelled = True
            return core.abort(name, now)

        self.post(abort)

    def submit_again(self, spec: RequestSpec, now: float) -> list[Output]:
        """The id of a live request: refused by an error, and nothing changes. One that has ended is left alone."""
        if spec.id in self.core.requests:
            with suppress(ValueError):
                self.core.submit(spec, now)
                raise Violation(f"the live id {spec.id} was taken again")
        return []

    def _deliver(self, outputs: list[Output]) -> None:
        if outputs != self.core.undelivered:
            raise Violation(f"the front hears {outputs} instead of {self.core.undelivered}")
        self.core.undelivered = []
        for output in outputs:
            if isinstance(output, Committed):
                spec, fate = self._specs[output.request], self._fates[output.request]
                if spec.is_constrained:
                    state = self.oracle.asked[output.request].branches[output.branch].state
                    self._mask(spec, output.branch, output.position + 1, state)
                if fate.stopped_after is not None and output.position + 1 == fate.stopped_after:
                    self.stop(output.request, output.branch, fate.stopped_after - fate.stopped_by)

    def stop(self, name: str, branch: int, at: int) -> None:
        """A stop string was found after so many tokens of a branch, none of which is still to come."""

        def abort(core: Core, now: float) -> list[Output]:
            self.oracle.asked[name].stop_at[branch] = at
            return core.abort(name, now, at, branch)

        self.post(abort)

    # the course of a run ----------------------------------------------------------------------------------------------

    def note_fault(self, kind: str) -> None:
        self.coverage.fault(kind)
        if self.tell:
            self.tell(f"!! {kind}")

    def _calm_down(self) -> None:
        """From here on nothing goes wrong any more; what did go wrong has to be noticed and mended."""
        self.is_calm = self.network.is_calm = True
        self._bring_survivor()
        if not (self.is_liveness or self.scenario.is_roomy) and self._draw.random() < 0.5:
            for spec in self._unended()[MOST_LEFT:]:
                self.cancel(spec.id)
        for station in self.stations.values():
            if station is not self.survivor and (self.is_liveness or self._draw.random() < 0.3):
                station.kill()
        self._calm_until = self.timeline.now + RECOVERY_SECONDS + self._seconds_of_work()

    def _unended(self) -> list[RequestSpec]:
        """Requests that are live, or that the scheduler will hear of in its next turn."""
        asked, live = self.oracle.asked, self.oracle.live
        return [spec for name, spec in self._specs.items() if name in live or name not in asked]

    def _seconds_of_work(self) -> float:
        """One request after the other, from its beginning; and all of that again for each failure still to come."""
        scenario, left = self.scenario, self._unended()
        settings = scenario.settings
        is_starved = any(worker.budget < worker.appetite.most for worker in self.core.workers.values())
        chunk = min(settings.max_chunk or 64, settings.max_step_tokens, scenario.survivor.max_step_tokens)
        if is_starved or any(spec.id in self.poisonous for spec in left):  # steps get small when memory runs out
            chunk = 1
        tokens = sum(spec.n * (-(-len(spec.prompt) // chunk) + (spec.max_tokens or 1)) for spec in left)
        failures = settings.max_faults * sum(spec.n for spec in left if spec.id in self.poisonous)
        step = (
            1.5 * scenario.step_seconds
            + (3 * scenario.mask_seconds if scenario.has_masks else 0.0)
            + (SLOW_MASK_SECONDS if scenario.slow_mask_rate else 0.0)
            + 4 * scenario.weather.latency
            + 4 * scenario.turn_seconds
        )
        return STEPS_PER_TOKEN * step * (tokens + 10) * (1 + failures) + failures * 2 * RESTART_SECONDS

    def _before_turn(self, timeout: float) -> None:
        if self.core.undelivered:
            raise Violation(f"the front never hears of {self.core.undelivered}")
        self._vigil.look(timeout)
        if self.num_events > MOST_EVENTS:
            raise Stuck(f"there is no end after {MOST_EVENTS} events")
        if not self.is_calm and self.num_events >= self._next_strike:
            self._faults.strike()
            self._next_strike = self.num_events + self._draw.expovariate(1 / self.scenario.fault_interval)
        if self.scenario.has_ends and not self.is_calm:
            self._faults.strike_fleeting()
        if self.is_calm:
            if not self.oracle.live and self._is_idle():
                self._finish()
            elif self.timeline.now > self._calm_until:
                raise Stuck(f"{sorted(self.oracle.live)} have not ended, {self._calm_until} s was the bound")

    def _is_idle(self) -> bool:
        return all(not (worker.in_flight or worker.freed_slots) for worker in self.core.workers.values())

    def _finish(self) -> None:
        """I18: at rest nothing is held, and after a flush every page is free."""
        if not self._is_flushed:
            self._is_flushed = True
            self.core.check_all()
            self._check_counters()
            self.post(lambda core, now: core.apply(events.Flush(), now))
            return
        core = self.core
        if core.requests or core.waiting or core.waiting.num_accounts or core.waiting.queued_of:
            raise Violation("the core remembers requests that have ended")
        for worker in core.workers.values():
            for pool in (worker.device, worker.host):
                if pool.num_free != pool.total or pool._content or pool._named_until:
                    raise Violation(f"{pool.num_free} of {pool.total} pages of {worker.id} are free at rest")
            station = self.stations.get(worker.id)
            if station is not None and self._is_welcomed(station) and station.paper.slots:
                raise Violation(f"{worker.id} still has slots at rest")
        self.loop.stop()

    def _is_welcomed(self, station: Station) -> bool:
        """Whether the station knows of its stay; a Welcome may still be on its way to one that dialled again."""
        counters = {m.epoch.counter for m in self.loop.members.values() if m.worker == station.name}
        return station.is_joined and station.epoch.counter in counters

    def _check_counters(self) -> None:
        counters, oracle = self.core.counters, self.oracle
        seen = {
            "accepted": len(oracle.asked) - counters.refused,
            "ended": counters.accepted,
            "cancelled": oracle.num_cancelled,
            "generated_tokens": oracle.num_committed,
            "prompt_tokens": self.core.num_prompt_tokens,
            "refused": oracle.num_refused,
            "workers_lost": self.core.num_lost,
        }
        for name, count in seen.items():
            if getattr(counters, name) != count:
                raise Violation(f"{name} is counted as {getattr(counters, name)} and is {count}")
        workers, given_up = self.core.workers.values(), self.core.num_given_up
        for name, state in (("swaps", SequenceState.SWAPPED), ("drops", SequenceState.WAITING)):
            total = getattr(counters, name) + sum(getattr(worker, f"num_{name}") for worker in workers)
            if total != given_up[state]:
                raise Violation(f"{total} {name} are counted, and {given_up[state]} took place")


def run(seed: int, *, is_liveness: bool = False, coverage: Coverage | None = None) -> Outcome:
    return World(seed, is_liveness=is_liveness, coverage=coverage).run()


Runner = Callable[[int], Outcome]
