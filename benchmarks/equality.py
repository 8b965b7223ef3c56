"""Token ids under preemption, compared with the undisturbed answer. Prints one line of JSON.

With --cases: so many schedules of tests/equality/cases.py on a tiny model, greedy and sampled, over position, page size,
chunk, prefix cache, swap and drop, one answer and three. A schedule in which nothing was preempted does not count. Blocks
that are done are kept in .cache/ under a digest of the sources, so that a run that was interrupted goes on.

Without: the real model, preempted at every position, by swap and by drop; page 16, greedy.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from itertools import count
from math import ceil
from pathlib import Path

from octavo_client.default_model import find_default_model
from octavo_scheduler.core.settings import PreemptMode
from octavo_scheduler.model import load_model

from tests.equality.cases import Bench, case
from tests.equality.engine import POSITIONS, RunnerWorker, generate, preempt_at
from tests.equality.prompts import prompts

ROOT = Path(__file__).parents[1]
SOURCES = ("scheduler/octavo_scheduler", "worker", "kernels", "protos/octavo", "tests/equality", "tests/doubles")
FIGURES = ("cases", "preempted", "different", "of_several_answers", "forks")
BLOCK = 50
BENCHES: list[Bench] = []
"""The one of this process."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="schedules of the tiny model (default: the real model instead)")
    parser.add_argument("--processes", type=int, default=2, help="side by side (default: %(default)s)")
    parser.add_argument("--model", type=Path, help="the real model (default: the one that was installed)")
    options = parser.parse_args()
    if options.cases is None:
        figures: dict[str, float] = real(options.model or find_default_model())
    else:
        figures = tiny(options.cases, options.processes)
    print(json.dumps({"target": "equality", **figures}))
    return 0 if figures["different"] == 0 and figures["preempted"] == figures["cases"] else 1


def tiny(cases: int, num_processes: int) -> dict[str, float]:
    """Blocks of cases, side by side, until so many of them have preempted something."""
    store = ROOT / ".cache" / "equality" / f"{digest()}.jsonl"
    done = read_blocks(store)
    total: Counter[str] = Counter()
    blocks = count()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, mp_context=context, initializer=start) as processes:
        while total["cases"] < cases:
            wave = [next(blocks) for _ in range(ceil((cases - total["cases"]) / BLOCK))]
            missing = [block for block in wave if block not in done]
            for block, figures in zip(missing, processes.map(run_block, missing), strict=True):
                done[block] = figures
                with store.open("a") as file:
                    file.write(json.dumps({"block": block, "figures": figures}) + "\n")
            for block in wave:
                total.update(done[block])
    return {**{name: total[name] for name in FIGURES}, "ms_per_case": round(total["ms"] / total["cases"], 1)}


def read_blocks(store: Path) -> dict[int, Counter[str]]:
    """Those that earlier runs have done."""
    store.parent.mkdir(parents=True, exist_ok=True)
    entries = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    return {entry["block"]: Counter(entry["figures"]) for entry in entries}


def digest() -> str:
    """Of everything that an id could depend on."""
    found = sha256()
    for file in sorted(file for folder in SOURCES for file in (ROOT / folder).rglob("*.py")):
        found.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def start() -> None:
    """Of a process."""
    with tempfile.TemporaryDirectory(prefix="octavo-equality-") as folder:
        BENCHES.append(Bench(Path(folder) / "model"))


def run_block(block: int) -> "Counter[str]":
    """BLOCK cases: how many preempted something, and how many of those gave other ids."""
    (bench,) = BENCHES
    started = time.perf_counter()
    figures: Counter[str] = Counter()
    for number in range(block * BLOCK, (block + 1) * BLOCK):
        chosen = case(number)
        outcome = bench.run(chosen)
        if not outcome.preemptions("junior"):
            continue
        is_different = bench.differs(chosen, outcome)
        if is_different:
            print(f"case {number} differs: {chosen}", file=sys.stderr, flush=True)
        figures.update(cases=1, preempted=1, different=is_different)
        figures.update(of_several_answers=chosen.n > 1, forks=outcome.num_forks)
    figures["ms"] = round((time.perf_counter() - started) * 1e3)
    print(f"block {block}: {figures['cases']} cases, {figures['different']} differ", file=sys.stderr, flush=True)
    return figures


def real(model: Path) -> dict[str, float]:
    """Every position, both ways."""
    both = prompts(load_model(model).vocabulary, [48, 16])
    worker = RunnerWorker(model, page_size=16, pages=32, host_pages=16, invariant=True, max_step_tokens=64)
    modes: tuple[PreemptMode, ...] = ("swap", "drop")
    cases = different = preempted = 0
    undisturbed = generate(worker, [[1], both[1]], 35)[1]
    for mode in modes:
        for position in POSITIONS:
            table = preempt_at(worker, mode, position, both)
            cases += 1
            preempted += table.finished["1"].preemptions
            different += table.tokens["1"] != undisturbed
        print(f"{mode}: {different} of {cases} cases differ so far", file=sys.stderr, flush=True)
    return {"cases": cases, "preempted": preempted, "different": different}


if __name__ == "__main__":
    sys.exit(main())
