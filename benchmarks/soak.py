"""A hundred thousand requests to one scheduler, and what is left when all of them have gone.

    python -m benchmarks.soak --requests 100000

Workers are of paper and speak the true protocol; `tests/faults/soak.py` says what the requests are. Blocks of 10,000 that
are done are kept in .cache/ under a digest of the sources: a run that was interrupted goes on, with another scheduler, which
is warmed up first, by as many requests. Prints one line of JSON. rss_growth: of the scheduler's memory since it was warm, at
most; descriptors and threads: of the scheduler, when it was warm and at the end, and so for the worker that lived longest;
opened: which kinds of descriptors there were more of at the end.
"""

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from octavo_scheduler.limits import KEPT_ANSWER_SECONDS

from benchmarks.store import PROBLEM, ROOT, Entry, Store, digest
from tests.doubles.tiny_model import make_tiny_model
from tests.faults.cluster import cluster
from tests.faults.soak import MAPS, OUTCOMES, Soak

BLOCK, WARM = 10_000, 10_000
MOST_GROWTH = 0.05
MOST_SHOWN = 20
SUMS = ("requests", *OUTCOMES, "accepted", "terminal", "kills")


class Life:
    """A scheduler from its start, which is when the first block has to be run, to its end."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.name = secrets.token_hex(4)
        self.soak: Soak | None = None
        self.warm: Entry = {}

    def block(self, first: int, count: int) -> Entry:
        """An entry of the store."""
        if self.soak is None:
            self.soak = self._begin()
            asyncio.run(self.soak.begin())
            self.warm = asyncio.run(self.soak.block(-WARM, WARM))
        entry = asyncio.run(self.soak.block(first, count))
        problems = [*self.warm["problems"], *entry["problems"], *problems_of(entry, self.warm["left"])]
        entry |= {"life": self.name, "warm": self.warm["left"], "problems": problems[:MOST_SHOWN]}
        return entry | ({PROBLEM: problems[0]} if problems else {})

    def _begin(self) -> Soak:
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="octavo-")))
        model = make_tiny_model(folder / "model")
        program = ("tests.faults.scheduler", str(KEPT_ANSWER_SECONDS))
        made = self.stack.enter_context(cluster(model, folder, "paper", program=program))
        return Soak(made, KEPT_ANSWER_SECONDS)


def problems_of(entry: Entry, warm: Entry) -> list[str]:
    """What a block shows that must not be: something is left, or has grown."""
    left = entry["left"]
    problems = [f"{left[name]} {name} are left" for name in MAPS if left[name]]
    if left["pages_free"] != left["pages_total"]:
        problems.append(f"{left['pages_free']} of {left['pages_total']} pages are free")
    if entry["accepted"] != entry["terminal"]:
        problems.append(f"{entry['accepted']} requests were accepted, {entry['terminal']} ended")
    if growth(left, warm) > MOST_GROWTH:
        problems.append(f"memory grew from {warm['rss']} to {left['rss']} bytes")
    opened = dict(Counter(left["open"]) - Counter(warm["open"]))
    problems += [
        f"{name} were {warm[name]}, are {left[name]}" + (f", more of them {opened}" if name == "descriptors" else "")
        for name in ("objects", "descriptors", "threads", "worker_descriptors")
        if left[name] > warm[name]
    ]
    return problems


def growth(left: Entry, warm: Entry) -> float:
    return float(left["rss"] / warm["rss"] - 1)


def figures(entries: list[Entry]) -> dict[str, Any]:
    """Of all blocks."""
    total = Counter[str]()
    for entry in entries:
        total.update({name: entry[name] for name in SUMS})
    last, warm = entries[-1]["left"], entries[-1]["warm"]
    return {
        **total,
        "warmed_up_by": WARM,
        "pages_free": last["pages_free"],
        "pages_total": last["pages_total"],
        "maps": max(sum(entry["left"][name] for name in MAPS) for entry in entries),
        "objects": [warm["objects"], last["objects"]],
        "rss_mb": round(last["rss"] / 2**20, 1),
        "rss_growth": round(max(growth(entry["left"], entry["warm"]) for entry in entries), 4),
        "worker_rss_growth": round(last["worker_rss"] / warm["worker_rss"] - 1, 4),
        "descriptors": [warm["descriptors"], last["descriptors"]],
        "opened": dict(Counter(last["open"]) - Counter(warm["open"])),
        "threads": [warm["threads"], last["threads"]],
        "worker_descriptors": [warm["worker_descriptors"], last["worker_descriptors"]],
        "schedulers": len({entry["life"] for entry in entries}),
        "problems": sum(len(entry["problems"]) for entry in entries),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="default: %(default)s")
    options = parser.parse_args()
    sources = [
        path.read_text() for name in ("faults", "doubles") for path in sorted((ROOT / "tests" / name).glob("*.py"))
    ]
    store = Store(ROOT / ".cache" / "soak" / f"{digest(sources)}.jsonl")
    entries: list[Entry] = []
    with ExitStack() as stack:
        life = Life(stack)
        for first in range(0, options.requests, BLOCK):
            count = min(BLOCK, options.requests - first)
            entries.append(store.get(f"{first} {count}", lambda f=first, c=count: life.block(f, c)))  # type: ignore[misc]
            print(f"{first + count} of {options.requests} requests", file=sys.stderr, flush=True)
    found = figures(entries)
    for problem in [problem for entry in entries for problem in entry["problems"]][:MOST_SHOWN]:
        print(problem)
    print(json.dumps({"target": "soak", **found}))
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
