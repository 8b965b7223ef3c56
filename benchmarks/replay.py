"""Are recorded runs replayed plan for plan, and how fast?

`--runs` seeded histories of a service on a table top (tests/doubles/history) are recorded, half of them with pseudonyms and
half with token ids, and replayed by other processes, each with a hash seed of its own, under this Python and every later one
that is found (on the path, at pyenv, or named by `--python`). Then workload W runs through real processes and the real model
with a recording scheduler, and that log is replayed: the speed-up is the time from its first request to its last end over
that of the replay. Last, what recording costs a core with 256 decoding sequences, within the verbs and after the plans are
out. Prints one line of JSON. What was recorded stays in a folder for this very version of the scheduler, so that an
interrupted check goes on where it was.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import google.protobuf
import octavo
import octavo_scheduler
from octavo_client.default_model import find_default_model
from octavo_client.local import LocalServer
from octavo_scheduler.core import Core, Settings, events
from octavo_scheduler.event_log import EventLog
from octavo_scheduler.offline.change import Change
from octavo_scheduler.offline.comparison import compare
from octavo_scheduler.record import Recorder

from benchmarks.core import STEPS, percentiles, steady
from benchmarks.utilisation import run
from benchmarks.workload import workload
from tests.doubles.history import history

LATER = [f"3.{minor}" for minor in range(12, 17)]
RUNS_PER_CHILD = 50
CHILDREN = 2


def record(path: Path, seed: int) -> None:
    """Odd seeds with token ids, even ones with pseudonyms."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    recorders: list[Recorder] = []

    def make(settings: Settings) -> Core:
        recorders.append(Recorder(settings, part, has_tokens=bool(seed % 2)))
        return recorders[0]

    history(seed, make)
    recorders[0].close()
    part.rename(path)


def child(*words: str, paths: Iterable[Path] = ()) -> str:
    """What a process with a random hash seed prints. Raises RuntimeError for exit codes but 0 and 1 (a difference found)."""
    environment = {**os.environ, "PYTHONHASHSEED": str(random.randrange(1 << 32))}
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    ended = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True)
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"{words[0]} ended with {ended.returncode}: {ended.stdout}")
    return ended.stdout


def shared_paths() -> list[Path]:
    """Where this Python finds the scheduler, the schema and protobuf: all that a replay needs."""
    sources = [Path(package.__path__[0]).parent for package in (octavo_scheduler, octavo)]
    return [*sources, Path(google.protobuf.__path__[0]).parents[1]]


def pythons(named: Iterable[str]) -> dict[str, str]:
    """Version and path: this Python, the named ones and the later ones that are here. They borrow this one's packages."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    on_path = [shutil.which(f"python{version}") for version in LATER]
    at_pyenv = [str(path) for version in LATER for path in sorted(versions.glob(f"{version}.*/bin/python"))]
    found: dict[str, str] = {}
    for python in filter(None, [sys.executable, *named, *on_path, *at_pyenv]):
        answer = subprocess.run([python, "--version"], capture_output=True, text=True)
        if answer.returncode == 0:  # a name on the path may stand for a Python that is not installed
            found.setdefault(answer.stdout.split()[1], python)
    return found


def replay(python: str, logs: Iterable[Path]) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(
        child(python, "-m", "octavo_scheduler.offline.replay", *map(str, logs), paths=shared_paths())
    )
    return figures


def random_runs(folder: Path, count: int, others: Iterable[str]) -> dict[str, Any]:
    logs = [folder / f"{seed}.log" for seed in range(count)]
    missing = [log.stem for log in logs if not log.exists()]
    make = [sys.executable, "-m", "benchmarks.replay", "--folder", str(folder), "--record"]
    found = pythons(others)
    with ThreadPoolExecutor(CHILDREN) as pool:
        for made in [pool.submit(child, *make, *seeds) for seeds in batches(missing)]:
            made.result()
        replayed = {
            name: [pool.submit(replay, python, part) for part in batches(logs)] for name, python in found.items()
        }
        results = {name: [part.result() for part in parts] for name, parts in replayed.items()}
    equal = {name: sum(part["equal"] for part in parts) for name, parts in results.items()}
    plans = sum(part["plans"] for part in next(iter(results.values())))
    return {"runs": count, "equal": min(equal.values()), "equal_by_python": equal, "plans": plans}


def batches(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + RUNS_PER_CHILD] for start in range(0, len(items), RUNS_PER_CHILD)]


def version() -> str:
    """Of the scheduler's sources: logs of another one would rightly be replayed with other plans."""
    digest = hashlib.sha256()
    for path in sorted(Path(octavo_scheduler.__path__[0]).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def real_run(folder: Path, model: Path) -> dict[str, Any]:
    """Workload W, recorded; how fast its replay is, and how far a simulation of it is from what was recorded."""
    log = folder / "w.log"
    if not log.exists():
        part = folder / "w.part"
        part.unlink(missing_ok=True)
        with LocalServer(
            model, scheduler_flags=[f"--record={part}"], worker_flags=["--pages=600", "--swap-space=1GiB"]
        ) as server:
            asyncio.run(run(server.address, workload()))
        part.rename(log)
    figures = replay(sys.executable, [log])
    comparison = compare(EventLog(log), Change({}, {}))
    return {
        "w_equal": figures["equal"],
        "w_plans": figures["plans"],
        "w_seconds": round(comparison.recorded.makespan, 2),
        "replay_seconds": figures["seconds"],
        "speedup": round(comparison.recorded.makespan / figures["seconds"], 1),
        "model_error": {name: round(error, 4) for name, error in comparison.errors.items() if error is not None},
    }


def recording_cost(num_sequences: int = 256) -> dict[str, Any]:
    """Microseconds that recording adds to a decode step."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Settings(max_num_seqs=num_sequences, max_step_tokens=8192), Path(folder, "log"))
        steady(num_sequences, recorder)
        recorder.write()
        plain = steady(num_sequences)
        verbs, bare, writes = [], [], []
        for number in range(STEPS):
            verbs.append(step_seconds(recorder, number))
            bare.append(step_seconds(plain, number))
            started = time.perf_counter()
            recorder.write()
            writes.append(time.perf_counter() - started)
        recorder.close()
        size = Path(folder, "log").stat().st_size
    return {
        "step_us": percentiles(bare)[0],
        "recorded_step_us": percentiles(verbs)[0],
        "write_us": percentiles(writes)[0],
        "bytes_per_token": round(size / (STEPS * num_sequences), 2),
    }


def step_seconds(core: Core, number: int) -> float:
    """One plan and its result, with a token that differs from sequence to sequence and from step to step."""
    started = time.perf_counter()
    plan = core.plan("w", float(number))
    assert plan is not None
    done = events.StepDone(
        "w", plan.step, tuple((number * 977 + i * 31) % 50_000 for i in range(sum(plan.row_samples)))
    )
    core.apply(done, float(number))
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path(".cache/replay", version()), help="for what is recorded")
    parser.add_argument("--python", action="append", default=[], metavar="PATH", help="one more Python to replay with")
    parser.add_argument("--record", type=int, nargs="*", metavar="SEED", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.record is not None:
        for seed in options.record:
            record(options.folder / f"{seed}.log", seed)
        return 0
    figures = {
        "target": "replay-check",
        **random_runs(options.folder, options.runs, options.python),
        **real_run(options.folder, options.model or find_default_model()),
        **recording_cost(),
    }
    print(json.dumps(figures))
    return 0 if figures["equal"] == figures["runs"] and figures["w_equal"] == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
