"""How well a worker predicts real English text, and how often its most likely token is that of the reference in float32.

The text is the first 100 kB of the topics that come with every Python (`help("topics")`, from `pydoc_data`), cut into
windows of 1,024 tokens. The shipped decoder computes each window in steps of up to 256 tokens, through pages, and all of its
tokens go through the head. Perplexity is exp of the mean negative log-likelihood of each next token within its window;
agreement is the share of positions where argmax of the logits is that of the reference, given the same text so far.

A configuration is a string of flags of `octavo worker` (--flags="--dtype=bfloat16 --weights=int8"). For a GGUF file the
reference computes with its dequantised weights: what is said of a 4-bit file is said against those very weights, not against
what they were rounded from.
Prints a table, then one line of JSON.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from numpy.typing import NDArray
from octavo.v1 import step_pb2
from octavo_client.default_model import find_default_model
from octavo_scheduler.model import load_model
from octavo_worker.batch import read_plan
from octavo_worker.change import apply
from octavo_worker.check import foresee
from octavo_worker.errors import WorkerError
from octavo_worker.runner import Runner
from octavo_worker.step import fill

from benchmarks.machine import machine
from benchmarks.service import start_runner
from benchmarks.table import Cell, table
from tests.worker.plans import growth, new_slots, rows

TEXT_BYTES = 100_000
WINDOW = 1024
CHUNK = 256
REFERENCE = "--kernels=reference --dtype=float32"
CONFIGURATIONS = (
    "--dtype=bfloat16",
    "--dtype=bfloat16 --kv-dtype=int8",
    "--dtype=bfloat16 --weights=int8",
    "--dtype=bfloat16 --weights=int8 --kv-dtype=int8",
    "--dtype=bfloat16 --weights=int8_groups",
    "--dtype=bfloat16 --weights=int4",
)

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Scores:
    """Of all positions that have a next token: its negative log-likelihood, in nats, and the most likely token."""

    surprise: Floats
    likely: Ints

    @property
    def perplexity(self) -> float:
        """exp of the mean."""
        return exp(float(self.surprise.mean(dtype=np.float64)))

    def agreement(self, other: "Scores") -> float:
        """Share of positions with the same most likely token."""
        return float((self.likely == other.likely).mean())


def text(num_bytes: int = TEXT_BYTES) -> str:
    """The same prose on every machine with the same Python."""
    return "\n".join(topics[name] for name in sorted(topics)).encode()[:num_bytes].decode(errors="ignore")


def windows(ids: Sequence[int], length: int = WINDOW) -> list[list[int]]:
    """All of `length` tokens, but the last, which is dropped if it has no next token to predict."""
    cut = [list(ids[start : start + length]) for start in range(0, len(ids), length)]
    return [window for window in cut if len(window) > 1]


def score(logits: Floats, following: Ints) -> Scores:
    """Of some positions [n, vocabulary], each with the token that follows [n]."""
    most = logits.max(axis=1)
    total = np.exp(logits - most[:, None]).sum(axis=1)
    chosen = logits[np.arange(len(following)), following]
    return Scores(most + np.log(total) - chosen, logits.argmax(axis=1))


def joined(parts: Sequence[Scores]) -> Scores:
    return Scores(np.concatenate([part.surprise for part in parts]), np.concatenate([part.likely for part in parts]))


def window_scores(runner: Runner, window: Sequence[int]) -> Scores:
    """One sequence, chunk by chunk; its last token only has to be predicted."""
    runner.reset()
    num_pages = -(-len(window) // runner.config.page_size)
    parts = []
    for start in range(0, len(window) - 1, CHUNK):
        count = min(CHUNK, len(window) - 1 - start)
        plan = step_pb2.StepPlan(step=runner.last_step + 1, rows=rows({0: count}, samples=[0]))
        if start == 0:
            plan.full = True
            plan.new_slots.CopyFrom(new_slots({0: window}))
            plan.growth.CopyFrom(growth({0: range(1, 1 + num_pages)}))
        parts.append(score(all_logits(runner, plan), np.array(window[start + 1 : start + 1 + count])))
    return joined(parts)


def all_logits(runner: Runner, message: step_pb2.StepPlan) -> Floats:
    """What the runner does with a plan of one row, but that every token of the row goes through the head."""
    plan = read_plan(message)
    apply(plan, foresee(plan, runner.slots, runner.limits, runner.last_step), runner.slots)
    fill(runner.step, plan.rows, runner.slots)
    count = runner.step.num_tokens
    runner.step.head_token[:count] = np.arange(count)
    runner.step.count(tokens=count, rows=1, head_rows=count, samples=0)
    runner.decoder.replay()
    runner.slots.counts.computed[0] += count
    runner.last_step = plan.step
    return np.asarray(runner.decoder.logits)[:count]


def evaluate(model: Path, flags: str, cut: Sequence[Sequence[int]]) -> tuple[Scores, float]:
    """Scores of all windows, and seconds."""
    sizes = [
        f"--max-slots={CHUNK}",
        f"--max-step-tokens={CHUNK}",
        f"--max-context={WINDOW + 1}",
        "--kv-cache-memory=256MiB",
    ]
    runner = start_runner(model, [*shlex.split(flags), *sizes])
    started = time.perf_counter()
    scores = joined([window_scores(runner, window) for window in cut])
    return scores, time.perf_counter() - started


def main() -> int:
    options = read_options()
    model = options.model or find_default_model()
    cut = windows(load_model(model).vocabulary.encode(text(options.bytes)))
    results: dict[str, dict[str, Any]] = {}
    reference: Scores | None = None
    for flags in (REFERENCE, *(options.flags or CONFIGURATIONS)):
        try:
            scores, seconds = evaluate(model, flags, cut)
        except WorkerError as error:
            print(f"{flags}: {error}", file=sys.stderr, flush=True)
            continue
        reference = reference or scores
        results[flags] = {
            "perplexity": scores.perplexity,
            "rise": scores.perplexity / reference.perplexity - 1,
            "agreement": scores.agreement(reference),
            "seconds": seconds,
        }
        print(f"{flags}: {results[flags]}", file=sys.stderr, flush=True)
    print_table(results)
    positions = sum(len(window) - 1 for window in cut)
    print(json.dumps({"target": "perplexity", "machine": machine(), "positions": positions, "flags": results}))
    return 0


def print_table(results: dict[str, dict[str, Any]]) -> None:
    body: list[list[Cell]] = [
        [flags, f"{each['perplexity']:.3f}", f"{100 * each['rise']:+.2f}", f"{100 * each['agreement']:.2f}"]
        for flags, each in results.items()
    ]
    print(table(["flags of the worker", "perplexity", "rise %", "agreement %"], body))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.perplexity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, help="model folder or GGUF file (default: the one that was installed)")
    parser.add_argument("--bytes", type=int, default=TEXT_BYTES, help="of the text (default: %(default)s)")
    parser.add_argument("--flags", action="append", help="of one configuration, in one string; may come again")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
