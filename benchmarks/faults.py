"""Kills, freezes and cuts off real workers under load, and counts what clients notice of it.

    python -m benchmarks.faults --kills 200                  the production worker on a tiny model
    python -m benchmarks.faults --kills 1000 --kind paper    the production link around a worker of paper

Twelve streams run on three workers and a doomed one, which dies before it receives, in the middle of a step, before or
after it sends, in turn. Every stream's tokens are compared with an undisturbed run's. Prints one line of JSON.
"""

import argparse
import json
import tempfile
from pathlib import Path

from tests.doubles.tiny_model import make_tiny_model
from tests.faults.kills import kill
from tests.faults.silence import darken, freeze

SILENCES = 5


def worst(seconds: list[float]) -> float:
    return round(max(seconds, default=float("nan")), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--kind", choices=("real", "paper"), default="real")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny_model(Path(folder) / "model")
        places = [Path(folder) / name for name in ("kills", "frozen", "dark")]
        for place in places:
            place.mkdir()
        killed = kill(args.kind, model, places[0], args.kills)
        frozen, tally_frozen = freeze(args.kind, model, places[1], SILENCES)
        dark, tally_dark = darken(args.kind, model, places[2], SILENCES)
    silent = {
        "frozen": len(frozen),
        "frozen_s_max": worst(frozen),
        "black_holes": len(dark),
        "black_hole_s_max": worst(dark),
        "harm_of_silence": tally_frozen.harm + tally_dark.harm,
    }
    print(json.dumps({"kind": args.kind, **killed.figures(), **silent}))


if __name__ == "__main__":
    main()
