"""Mutated input in large numbers: frames of the step protocol, plans, gRPC messages, headers of model files.

    python -m benchmarks.fuzz --cases 100000     so many plans, messages and files each, and ten times as many frames
    python -m benchmarks.fuzz --only frames --first 1234 --cases 1      one case again

Cases run in blocks, each in a process of its own, so that one that ends its process counts as a crash and no more. Blocks
that are done are kept in .cache/ under a digest of the sources: a run that was interrupted goes on. Prints one line of JSON.
"""

import argparse
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module

from benchmarks.store import PROBLEM, ROOT, Entry, Store, digest

WEIGHTS = {"frames": 10, "plans": 1, "messages": 1, "files": 1}
BLOCK = {"frames": 50_000, "plans": 10_000, "messages": 5_000, "files": 5_000}
FIGURES = ("accepted", "refused", "crashes", "state_changes")
MOST_SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000, help="default: %(default)s")
    parser.add_argument(
        "--only", choices=tuple(WEIGHTS), help="run cases of one kind in this process, and keep nothing"
    )
    parser.add_argument("--first", type=int, default=0, help="with --only: the first case")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.only:
        print(json.dumps(run_here(options.only, options.first, options.cases)))
        return 0
    total, problems = run_all(options.cases)
    for problem in problems[:MOST_SHOWN]:
        print(problem)
    print(json.dumps({"target": "fuzz", **{name: total[name] for name in (*WEIGHTS, *FIGURES)}}))
    return 0 if total["crashes"] == total["state_changes"] == 0 else 1


def run_all(cases: int) -> tuple[Counter[str], list[str]]:
    """Counts of all kinds, and what went wrong."""
    store = Store(ROOT / ".cache" / "fuzz" / f"{digest(test_sources())}.jsonl")
    total, problems = Counter[str](), list[str]()
    for kind, weight in WEIGHTS.items():
        for first in range(0, cases * weight, BLOCK[kind]):
            count = min(BLOCK[kind], cases * weight - first)
            found = store.get(f"{kind} {first} {count}", lambda k=kind, f=first, c=count: run_apart(k, f, c))  # type: ignore[misc]
            total[kind] += found["cases"]
            total.update({name: found[name] for name in FIGURES})
            problems += [f"{kind}: {problem}" for problem in found["problems"]]
            print(f"{kind}: {total[kind]} of {cases * weight}", file=sys.stderr, flush=True)
    return total, problems


def run_apart(kind: str, first: int, count: int) -> Entry:
    words = [sys.executable, "-m", "benchmarks.fuzz", "--only", kind, "--first", str(first), "--cases", str(count)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        found: Entry = json.loads(done.stdout.splitlines()[-1])
        return found
    why = f"cases {first} to {first + count}: the process ended with {done.returncode}: {done.stderr[-300:]}"
    return {"cases": count, **dict.fromkeys(FIGURES, 0), "crashes": 1, "problems": [why], PROBLEM: why}


def run_here(kind: str, first: int, count: int) -> Entry:
    run: Callable[[int, int], object] = import_module(f"tests.fuzz.{kind}").run
    return asdict(run(first, count))  # type: ignore[call-overload, no-any-return]


def test_sources() -> list[str]:
    """Of the fuzzers and doubles, which count as sources here."""
    folders = (ROOT / "tests" / name for name in ("fuzz", "doubles", "worker"))
    return [path.read_text() for folder in folders for path in sorted(folder.glob("*.py"))]


if __name__ == "__main__":
    sys.exit(main())
