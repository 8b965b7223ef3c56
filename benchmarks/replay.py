"""Are recorded runs replayed plan for plan, and how fast?

`--runs` seeded histories of a service on a table top (tests/doubles/history) are recorded, half of them with pseudonyms and
half with token ids, and replayed by other processes, each with a hash seed of its own; then again by a second Python, one
compiled to WebAssembly that Node runs, where there is npm. Then workload W runs through real processes and the real model
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
import octavo.v1
import octavo_scheduler
from octavo_client.demo import find_default_model
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

NODE = Path(__file__).parent / "node"
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


def child(*words: str) -> str:
    """What a process with a random hash seed prints. Raises RuntimeError for exit codes but 0 and 1 (a difference found)."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(random.randrange(1 << 32)),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    ended = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True)
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"{words[0]} ended with {ended.returncode}: {ended.stdout}")
    return ended.stdout


def pythons(cache: Path) -> dict[str, list[str]]:
    """Command lines that go before `MODULE ARGUMENT...`: this Python, and where npm is, another one."""
    found = {"cpython": [sys.executable, "-m"]}
    if shutil.which("npm"):
        folder = cache / "node"
        shutil.copytree(NODE, folder, dirs_exist_ok=True)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True)
        searched = [Path(root).resolve() for root in (*octavo.__path__, *octavo_scheduler.__path__, *google.__path__)]
        shared = [str(folder) for folder in (*(path.parent for path in searched), cache.resolve())]
        found["wasm"] = ["node", str(folder / "python.js"), *dict.fromkeys(shared), "--"]
    return found


def replay(python: Sequence[str], logs: Iterable[Path]) -> dict[str, Any]:
    words = [*python, "octavo_scheduler.offline.replay", *(str(log.resolve()) for log in logs)]
    figures: dict[str, Any] = json.loads(child(*words))
    return figures


def random_runs(folder: Path, count: int) -> dict[str, Any]:
    logs = [folder / f"{seed}.log" for seed in range(count)]
    missing = [log.stem for log in logs if not log.exists()]
    make = [sys.executable, "-m", "benchmarks.replay", "--folder", str(folder), "--record"]
    found = pythons(folder)
    with ThreadPoolExecutor(CHILDREN) as pool:
        for made in [pool.submit(child, *make, *seeds) for seeds in batches(missing)]:
            made.result()
        replayed = {
            name: [pool.submit(replay, python, part) for part in batches(logs)] for name, python in found.items()
        }
        results = {name: [part.result() for part in parts] for name, parts in replayed.items()}
    equal = {name: sum(part["equal"] for part in parts) for name, parts in results.items()}
    plans = sum(part["plans"] for part in results["cpython"])
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
    figures = replay([sys.executable, "-m"], [log])
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
    parser.add_argument("--record", type=int, nargs="*", metavar="SEED", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.record is not None:
        for seed in options.record:
            record(options.folder / f"{seed}.log", seed)
        return 0
    figures = {
        "target": "replay-check",
        **random_runs(options.folder, options.runs),
        **real_run(options.folder, options.model or find_default_model()),
        **recording_cost(),
    }
    print(json.dumps(figures))
    return 0 if figures["equal"] == figures["runs"] and figures["w_equal"] == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
