"""Would pages in aligned contiguous runs pay? (A buddy allocator over base pages: 1, 2, 4, 8, ... pages to a run.)

Pools of one size serve the same churn of sequences: one page by page; one by runs for the prompt, whose length is known;
one by runs that also double what a growing answer holds. Where no run is free a shorter one is taken. Counted: entries of
block tables, bytes of plans (a page is an int32; a run is an int32 and its length), sequences running at once, how much of
what they hold is filled. Then times of this machine's kernels over scattered and over contiguous pages: moving pages to the
other tier, and gathering one layer of a sequence for attention.

Prints one line of JSON a workload, then one of times (ratios: scattered ÷ contiguous).
"""

import json
import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from octavo_kernels.choice import pick
from octavo_kernels.ops import Geometry

from benchmarks.workload import ANSWER_LENGTHS, PROMPT_LENGTHS

PAGE = 16
POOL = 4096
LARGEST = 64
STEPS = 6000
CHUNK = 512


class Buddies:
    """Runs of 1, 2, 4, ... LARGEST pages, each aligned to its own length."""

    def __init__(self, total: int) -> None:
        self.free: dict[int, set[int]] = {1 << k: set() for k in range(LARGEST.bit_length())}
        self.free[LARGEST] = set(range(0, total, LARGEST))

    @property
    def num_free(self) -> int:
        return sum(size * len(starts) for size, starts in self.free.items())

    def take(self, size: int) -> tuple[int, int] | None:
        """A run of `size` pages, cut out of a longer one if need be."""
        found = next((s for s in self.free if s >= size and self.free[s]), None)
        if found is None:
            return None
        start = min(self.free[found])
        self.free[found].remove(start)
        while found > size:
            found //= 2
            self.free[found].add(start + found)
        return start, size

    def give_back(self, start: int, size: int) -> None:
        while size < LARGEST and (start ^ size) in self.free[size]:
            self.free[size].remove(start ^ size)
            start &= ~size
            size *= 2
        self.free[size].add(start)


@dataclass
class Live:
    """A sequence: tokens it will have in all, tokens it has, runs it holds."""

    prompt: int
    total: int
    known: int = 0
    runs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def pages(self) -> int:
        return sum(size for _, size in self.runs)


def short(draw: random.Random) -> tuple[int, int]:
    """Prompt and answer of workload W."""
    return draw.choice(PROMPT_LENGTHS), draw.choice(ANSWER_LENGTHS)


def long(draw: random.Random) -> tuple[int, int]:
    """Mostly chats, some documents of 2,000 to 16,000 tokens."""
    prompt = draw.randrange(2000, 16000) if draw.random() < 0.3 else draw.randrange(100, 2000)
    return prompt, draw.randrange(50, 800)


class Pool:
    """Admits what fits, grows everybody, lets the last one start anew when there is no room. Counts."""

    def __init__(self, arrivals: Iterator[tuple[int, int]], longest_run: int, doubles: bool) -> None:
        self.arrivals = arrivals
        self.longest_run = longest_run
        self.doubles = doubles
        self.buddies = Buddies(POOL)
        self.running: deque[Live] = deque()
        self.plan_bytes = self.asked = self.granted = 0
        self.samples: list[tuple[int, int, int, int]] = []

    def step(self) -> None:
        budget = CHUNK
        for live in list(self.running):
            tokens = min(max(live.prompt - live.known, 1), budget)
            if live not in self.running or not tokens:
                continue
            if not self._grow(live, live.known + tokens):
                self._release(self.running.pop())
                continue
            live.known += tokens
            budget -= tokens
            if live.known >= live.total:
                self.running.remove(live)
                self._release(live)
        while budget and self.buddies.num_free * PAGE > 2 * len(self.running) * PAGE:
            prompt, answer = next(self.arrivals)
            if self.buddies.num_free * PAGE < prompt + PAGE * len(self.running):
                break
            live = Live(prompt, prompt + answer)
            self._grow(live, min(prompt, budget))
            live.known = min(prompt, budget)
            budget -= live.known
            self.running.append(live)
        held = sum(live.pages for live in self.running)
        filled = sum(live.known for live in self.running)
        self.samples.append((len(self.running), sum(len(live.runs) for live in self.running), held * PAGE, filled))

    def _grow(self, live: Live, tokens: int) -> bool:
        while (lacking := -(-tokens // PAGE) - live.pages) > 0:
            wish = 1
            expected = max(live.prompt // PAGE - live.pages, lacking, live.pages if self.doubles else 0)
            while wish * 2 <= min(expected, self.longest_run):
                wish *= 2
            self.asked += wish > 1
            run = self.buddies.take(wish)
            self.granted += wish > 1 and run is not None
            while run is None and wish > 1:
                wish //= 2
                run = self.buddies.take(wish)
            if run is None:
                return False
            live.runs.append(run)
            self.plan_bytes += 4 if self.longest_run == 1 else 8
        return True

    def _release(self, live: Live) -> None:
        for start, size in live.runs:
            self.buddies.give_back(start, size)


def drawn(lengths: Callable[[random.Random], tuple[int, int]]) -> Iterator[tuple[int, int]]:
    draw = random.Random(0)
    while True:
        yield lengths(draw)


def churn(name: str, lengths: Callable[[random.Random], tuple[int, int]]) -> dict[str, object]:
    figures: dict[str, object] = {"target": "runs", "workload": name}
    for label, longest_run, doubles in (
        ("pages", 1, False),
        ("runs_for_prompts", LARGEST, False),
        ("doubling_runs", LARGEST, True),
    ):
        pool = Pool(drawn(lengths), longest_run, doubles)
        for _ in range(STEPS):
            pool.step()
        late = pool.samples[STEPS // 3 :]
        figures[label] = {
            "sequences": round(statistics.mean(n for n, _, _, _ in late), 1),
            "table_entries": round(sum(e for _, e, _, _ in late) / sum(n for n, _, _, _ in late), 1),
            "growth_bytes_per_step": round(pool.plan_bytes / STEPS, 1),
            "filled_share": round(sum(f for _, _, _, f in late) / sum(h for _, _, h, _ in late), 4),
            "runs_granted": round(pool.granted / pool.asked, 3) if pool.asked else None,
        }
    return figures


def seconds(call: Callable[[], object], repeats: int = 15) -> float:
    call()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def kernel_times() -> dict[str, object]:
    """Pages of SmolLM2's shape in bfloat16; 256 pages hold 4,096 tokens."""
    geometry = Geometry(PAGE, 30, 3, 64, "bfloat16")
    count, total = 256, 1024
    ops = pick("cpu")
    pools = [ops.new_pool(geometry, total) for _ in range(2)]
    pool, host = (np.asarray(each) for each in pools)
    pool[:], host[:] = 1, 1
    scattered = np.random.default_rng(0).permutation(total)[:count] + 1
    contiguous = np.arange(1, count + 1)
    layer = pool.reshape(len(pool), geometry.num_layers, -1)[:, 7]

    def move(pages: np.ndarray) -> float:
        return seconds(lambda: ops.move_pages(pools[0], pages, pools[1], contiguous))

    def gather(pages: np.ndarray) -> float:
        return seconds(lambda: layer.take(pages, axis=0))

    in_one = seconds(lambda: np.copyto(host[1 : count + 1], pool[1 : count + 1]))
    moved, gathered = move(scattered), gather(scattered)
    return {
        "target": "runs",
        "workload": "kernels",
        "kernels": ops.name,
        "move_256_pages_ms": round(moved * 1e3, 2),
        "move_ratio": round(moved / move(contiguous), 2),
        "move_in_one_ratio": round(moved / in_one, 2),
        "gather_256_pages_us": round(gathered * 1e6, 1),
        "gather_ratio": round(gathered / gather(contiguous), 2),
    }


def main() -> int:
    for name, lengths in (("W", short), ("long", long)):
        print(json.dumps(churn(name, lengths)), flush=True)
    print(json.dumps(kernel_times()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
