"""Runs the simulation of tests/simulation over many seeds, on all cores, and remembers how far it got.

    python -m benchmarks.simulate --seeds 100000         go on until so many seeds are done
    python -m benchmarks.simulate --liveness --seeds 10000   the same with more faults, and one worker alone at the end
    python -m benchmarks.simulate --seed 1234 --trace    one seed, told in words

An *event* is one message received by the loop, one command run by it, one plan sent or one clock tick applied to the core;
after each the laws of what it touched are checked, after every 64th everything. Idle time costs ticks and heartbeats as in
production, so `plans` is counted beside it. Seeds, counters and failures are added up in a file until the sources change.
Prints one line of JSON.
"""

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.coverage import Coverage
from tests.simulation.trace import told
from tests.simulation.violation import Stuck
from tests.simulation.world import World

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".cache" / "simulate.json"
BATCH = 50
ENOUGH = 100
"""How often each pair of state and event, and each fault, shall have been met."""
MOST_FAILURES = 20


@dataclass
class Tally:
    """What some seeds came to."""

    seeds: int = 0
    events: int = 0
    plans: int = 0
    requests: int = 0
    fewest_events: int = 1 << 30
    short_seeds: int = 0
    """Seeds with fewer than 300 events."""
    busy_seconds: float = 0.0
    violations: list[list[str]] = field(default_factory=list)
    stuck: list[list[str]] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=lambda: Coverage().counts)

    def add(self, other: "Tally") -> None:
        self.seeds += other.seeds
        self.events += other.events
        self.plans += other.plans
        self.requests += other.requests
        self.fewest_events = min(self.fewest_events, other.fewest_events)
        self.short_seeds += other.short_seeds
        self.busy_seconds += other.busy_seconds
        self.violations += other.violations
        self.stuck += other.stuck
        for name, count in other.coverage.items():
            self.coverage[name] += count


def digest() -> str:
    """Of everything that decides what a seed does: of our modules, those that the simulation has loaded."""
    files = [Path(getattr(module, "__file__", None) or "/") for module in sys.modules.values()]
    own = sorted(file.relative_to(ROOT) for file in files if file.is_relative_to(ROOT))
    sha = hashlib.sha256()
    for path in filter(is_simulated, own):
        sha.update(str(path).encode() + b"\0" + (ROOT / path).read_bytes())
    return sha.hexdigest()[:16]


def is_simulated(path: Path) -> bool:
    return path.parts[0] in ("scheduler", "protos") or path.parts[:2] == ("tests", "simulation")


def simulate(job: tuple[int, int, bool]) -> dict[str, object]:
    """Runs a range of seeds. What goes back to the parent is plain."""
    first, last, is_liveness = job
    logging.getLogger("octavo.scheduler").setLevel(logging.CRITICAL)
    coverage, tally = Coverage(), Tally()
    started = time.process_time()
    for seed in range(first, last):
        world = World(seed, is_liveness=is_liveness, coverage=coverage)
        try:
            world.run()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            sentence = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
            (tally.stuck if isinstance(error, Stuck) else tally.violations).append([str(seed), sentence])
        tally.seeds += 1
        tally.events += world.num_events
        tally.plans += world.core.num_plans
        tally.requests += len(world.oracle.asked)
        tally.fewest_events = min(tally.fewest_events, world.num_events)
        tally.short_seeds += world.num_events < 300
    tally.busy_seconds = time.process_time() - started
    tally.coverage = coverage.counts
    return vars(tally)


def load(key: str, sources: str) -> Tally:
    tally = Tally()
    if STATE.exists():
        stored = json.loads(STATE.read_text()).get(key)
        if stored and stored.pop("sources") == sources:
            tally.add(Tally(**stored | {"coverage": Counter(stored["coverage"])}))
    return tally


def save(key: str, sources: str, tally: Tally) -> None:
    STATE.parent.mkdir(parents=True, exist_ok=True)
    everything = json.loads(STATE.read_text()) if STATE.exists() else {}
    everything[key] = vars(tally) | {"sources": sources, "coverage": dict(tally.coverage)}
    draft = STATE.with_suffix(".tmp")
    draft.write_text(json.dumps(everything))
    os.replace(draft, STATE)


def jobs(done: int, wanted: int, is_liveness: bool) -> Iterator[tuple[int, int, bool]]:
    for first in range(done, wanted, BATCH):
        yield first, min(first + BATCH, wanted), is_liveness


def run_all(options: argparse.Namespace) -> int:
    key, sources = "liveness" if options.liveness else "simulate", digest()
    tally = load(key, sources)
    started, before, saved_at = time.perf_counter(), tally.events, time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.processes) as pool:
        try:
            for found in pool.imap(simulate, jobs(tally.seeds, options.seeds, options.liveness)):
                tally.add(Tally(**found))  # type: ignore[arg-type]
                if time.perf_counter() - saved_at > 2.0:
                    save(key, sources, tally)
                    saved_at = time.perf_counter()
                if len(tally.violations) + len(tally.stuck) >= MOST_FAILURES:
                    break
        except KeyboardInterrupt:
            print(f"stopped; {tally.seeds} seeds are kept", file=sys.stderr)
        pool.terminate()
    save(key, sources, tally)
    num_new = tally.events - before
    report(key, options, tally, round(num_new / (time.perf_counter() - started)) if num_new else None)
    return 1 if tally.violations or tally.stuck else 0


def report(key: str, options: argparse.Namespace, tally: Tally, events_per_second: int | None) -> None:
    flag = " --liveness" if options.liveness else ""
    for seed, sentence in tally.violations + tally.stuck:
        print(f"seed {seed}: {sentence}\n  python -m benchmarks.simulate{flag} --seed {seed} --trace", file=sys.stderr)
    faults = {name.removeprefix("fault: "): n for name, n in tally.coverage.items() if name.startswith("fault: ")}
    pairs = {name: n for name, n in tally.coverage.items() if not name.startswith("fault: ")}
    line = {
        "target": key,
        "seeds": tally.seeds,
        "events": tally.events,
        "plans": tally.plans,
        "requests": tally.requests,
        "fewest_events": tally.fewest_events,
        "short_seeds": tally.short_seeds,
        "violations": len(tally.violations),
        "stuck": len(tally.stuck),
        "events_per_second": events_per_second,
        "events_per_core_second": round(tally.events / max(tally.busy_seconds, 1e-9)),
        "processes": options.processes,
        "met_too_rarely": sorted(name for name, count in tally.coverage.items() if count < ENOUGH),
        "faults": faults,
        "pairs": pairs,
    }
    print(json.dumps(line))


def run_one(options: argparse.Namespace) -> int:
    world = World(options.seed, is_liveness=options.liveness)
    try:
        with told(world) if options.trace else nullcontext():
            print(world.run())
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000, help="how many in all, those of earlier runs included")
    parser.add_argument("--liveness", action="store_true")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell every frame, fault, plan and output")
    options = parser.parse_args()
    return run_all(options) if options.seed is None else run_one(options)


if __name__ == "__main__":
    sys.exit(main())
