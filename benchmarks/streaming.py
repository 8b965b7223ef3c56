"""Streamed text against the text of all tokens, in large numbers: every script, several vocabularies, stops everywhere.

    python -m benchmarks.streaming --splits 1000000

A split is one answer: a text written in tokens by chance, which come in portions by chance, after a prompt or none, with
stop strings or none. `boundaries` are answers in which a stop string comes in all portions that there are. Blocks that are
done are kept in .cache/ under a digest of the sources: a run that was interrupted goes on. Prints one line of JSON.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from benchmarks.store import ROOT, Entry, Store, digest
from tests.streaming.cases import Findings, boundaries, drawn, judge
from tests.streaming.scripts import SCRIPTS
from tests.streaming.vocabularies import kinds

BLOCK = 5000
ROUNDS = 6
"""Texts of each script in which a stop string is cut everywhere."""
MOST_SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    options = parser.parse_args()
    found, at_boundaries = Findings(), Findings()
    store = Store(ROOT / ".cache" / "streaming" / f"{digest(test_sources())}.jsonl")
    with ProcessPoolExecutor(options.jobs) as pool:
        tasks = {task: pool.submit(run, task) for task in blocks(options.splits) if task not in store.entries}
        for task in blocks(options.splits):
            entry = store.get(task, partial(lambda name: tasks[name].result(), task))
            (at_boundaries if task.startswith("boundaries") else found).add(entry)
            print(f"{found.splits} of {options.splits} splits", file=sys.stderr, flush=True)
    for problem in (found.problems + at_boundaries.problems)[:MOST_SHOWN]:
        print(problem)
    figures = {
        **{name: value + getattr(at_boundaries, name) for name, value in found.counts().items() if name != "problems"},
        "splits": found.splits,
        "boundaries": at_boundaries.splits,
    }
    print(json.dumps({"target": "streaming-check", "scripts": len(SCRIPTS), "vocabularies": len(kinds()), **figures}))
    return 0 if found.num_wrong + at_boundaries.num_wrong == 0 else 1


def blocks(splits: int) -> list[str]:
    """Each as "what vocabulary first count"; vocabularies by number, which share the splits evenly."""
    numbers = range(len(kinds()))
    shares = {number: splits // len(numbers) + (number < splits % len(numbers)) for number in numbers}
    return [f"boundaries {number} 0 {ROUNDS}" for number in numbers] + [
        f"splits {number} {first} {min(BLOCK, share - first)}"
        for number, share in shares.items()
        for first in range(0, share, BLOCK)
    ]


def run(task: str) -> Entry:
    """The findings of one block."""
    what, *numbers = task.split()
    number, first, count = map(int, numbers)
    kind, found = list(kinds().values())[number], Findings()
    for nth in range(first, first + count):
        for case in (drawn(kind, nth),) if what == "splits" else (c for s in SCRIPTS for c in boundaries(kind, s, nth)):
            judge(case, found)
    return found.counts()


def test_sources() -> list[str]:
    """Of the cases, which count as sources here."""
    return [path.read_text() for path in sorted((ROOT / "tests" / "streaming").glob("*.py"))]


if __name__ == "__main__":
    sys.exit(main())
