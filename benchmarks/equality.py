"""Preempts the real model at every position, by swap and by drop, and compares ids with the undisturbed answer.

Page 16, invariant float32 mode, greedy. Prints one line of JSON: {cases, different}.
"""

import argparse
import json
import sys
from pathlib import Path

from octavo_client.demo import find_default_model
from octavo_scheduler.core.settings import PreemptMode
from octavo_scheduler.model import load_model

from tests.equality.engine import POSITIONS, RunnerWorker, generate, preempt_at
from tests.equality.prompts import prompts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    options = parser.parse_args()
    model = options.model or find_default_model()
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
        print(f"{mode}: {different} of {cases} cases differ so far", flush=True)
    print(json.dumps({"target": "equality", "cases": cases, "preempted": preempted, "different": different}))
    return 0 if different == 0 and preempted == cases else 1


if __name__ == "__main__":
    sys.exit(main())
