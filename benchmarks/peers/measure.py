"""One contestant, once: start it, give it the work, note how fast it was.

An entry has `about`, `ready_s` (from exec to the first work), and `samples`: by figure, pairs of tokens per second and the
share of the processors that others had meanwhile. `answers` are digests of the answers to W. Or it has a `problem` alone.
"""

import json
import sys
from hashlib import blake2b
from pathlib import Path

from benchmarks.machine import Watch
from benchmarks.peers.contestants import LONG_PROMPT, Contestant
from benchmarks.peers.engine import Engine, EngineFailed, run_tool
from benchmarks.peers.install import NotThere
from benchmarks.store import PROBLEM, Entry
from benchmarks.workload import Work, long_prompt, workload

SINGLE_TOKENS = 128
WARM_UP = 2
WARM_UP_TOKENS = 8


def pieces(seed: int) -> dict[str, tuple[list[Work], int]]:
    """By figure: what is asked, and how many tokens that counts for."""
    work = workload()
    single = Work(work[0].prompt, SINGLE_TOKENS)
    return {
        "w_tok_s": (work, sum(each.num_tokens for each in work)),
        "single_tok_s": ([single], SINGLE_TOKENS),
        "prefill_tok_s": ([long_prompt(LONG_PROMPT, seed)], LONG_PROMPT),
    }


def measure(contestant: Contestant, log: Path, number: int, repeats: int) -> Entry:
    """What came of it; `number` is that of the round. Whatever goes wrong with a contestant is its entry's problem."""
    try:
        command = contestant.command()
        if contestant.kind == "tool":
            return measure_tool(command, log)
        return measure_engine(command, log, number, repeats)
    except (NotThere, EngineFailed) as error:
        return {PROBLEM: str(error)}


def measure_engine(command: list[str], log: Path, number: int, repeats: int) -> Entry:
    samples: dict[str, list[list[float | None]]] = {}
    answers: list[str] = []
    with Engine(command, log) as engine:
        engine.run([Work(each.prompt, WARM_UP_TOKENS) for each in workload()[:WARM_UP]])
        for repeat in range(repeats):
            for name, (work, count) in pieces(number * repeats + repeat).items():
                watch = Watch()
                seconds, ids = engine.run(work)
                samples.setdefault(name, []).append([count / seconds, watch.others_share()])
                if name == "w_tok_s":
                    answers = [digest(each) for each in ids]
        return {"about": engine.about, "ready_s": engine.ready_seconds, "samples": samples, "answers": answers}


def measure_tool(command: list[str], log: Path) -> Entry:
    watch = Watch()
    rates = run_tool(command, log)
    share = watch.others_share()
    return {"about": {}, "samples": {name: [[rate, share]] for name, rate in rates.items()}}


def digest(ids: list[int]) -> str:
    """Of one answer."""
    return blake2b(json.dumps(ids).encode(), digest_size=6).hexdigest()


def say(name: str, number: int, entry: Entry) -> None:
    """A line while one waits."""
    best = ", ".join(
        f"{figure} {max(rate for rate, _ in samples):.1f}" for figure, samples in entry.get("samples", {}).items()
    )
    print(f"round {number + 1}: {name}: {entry.get(PROBLEM) or best}", file=sys.stderr, flush=True)
