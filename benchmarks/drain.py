"""Replaces workers in order, again and again, under load; then sends prompts of book length and watches health.

    python -m benchmarks.drain --cycles 25

Each of three real workers is drained and replaced so many times, told by SIGTERM or by AdminService, before its replacement
joins or after. Every stream's tokens are compared with an undisturbed run's. Then 200 prompts of 50,000 tokens and one of
27 MB come at once; health is asked for meanwhile, of that scheduler and of an idle one. Prints one line of JSON.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.doubles.tiny_model import make_tiny_model
from tests.faults.drains import drain
from tests.faults.long_prompts import CONTEXT, probe

LONG_PROMPTS = 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=25, help="default: %(default)s")
    parser.add_argument("--kind", choices=("real", "paper"), default="real", help="of workers; default: %(default)s")
    parser.add_argument("--long-prompts", type=int, default=LONG_PROMPTS, help="default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="octavo-") as folder:
        drained = drain(options.kind, make_tiny_model(Path(folder) / "model"), Path(folder), options.cycles)
        long_model = make_tiny_model(Path(folder) / "long", layers=1, max_context=CONTEXT)
        health = probe(long_model, options.long_prompts) if options.long_prompts else {}
    for error in drained.tally.errors[:20]:
        print(error)
    print(json.dumps({"target": "drain-check", "cycles": options.cycles, **drained.figures(), **health}))
    return 1 if drained.tally.harm else 0


if __name__ == "__main__":
    sys.exit(main())
