"""Kills, freezes and cuts off real workers under load, and counts what clients notice of it.

    python -m benchmarks.faults --kills 200                  the production worker on a tiny model
    python -m benchmarks.faults --kills 1000 --kind paper    the production link around a worker of paper

Twelve streams run on three workers and a doomed one, which dies before it receives, in the middle of a step, before or
after it sends, in turn. Later the lines to the workers are slow and cut, wall clocks jump, and a host tier is full. Every
stream's tokens are compared with an undisturbed run's. Prints one line of JSON.
"""

import argparse
import json
import tempfile
from pathlib import Path

from tests.doubles.tiny_model import make_tiny_model
from tests.faults.kills import kill
from tests.faults.silence import darken, freeze
from tests.faults.surroundings import bad_lines, full_host_tier, jumping_clocks

SILENCES, CUTS = 5, 20
CLOCK_SECONDS = 10.0


def worst(seconds: list[float]) -> float:
    return round(max(seconds, default=float("nan")), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--kind", choices=("real", "paper"), default="real")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny_model(Path(folder) / "model")
        places = [Path(folder) / name for name in ("kills", "frozen", "dark", "lines", "clocks", "tier")]
        for place in places:
            place.mkdir()
        killed = kill(args.kind, model, places[0], args.kills)
        frozen, tally_frozen = freeze(args.kind, model, places[1], SILENCES)
        dark, tally_dark = darken(args.kind, model, places[2], SILENCES)
        lines = bad_lines(args.kind, model, places[3], CUTS)
        clocks = jumping_clocks(args.kind, model, places[4], CLOCK_SECONDS)
        tier = full_host_tier(model, places[5])
    silent = {
        "frozen": len(frozen),
        "frozen_s_max": worst(frozen),
        "black_holes": len(dark),
        "black_hole_s_max": worst(dark),
        "harm_of_silence": tally_frozen.harm + tally_dark.harm,
    }
    around = {
        "line_cuts": CUTS,
        "harm_of_bad_lines": lines.tally.harm,
        "harm_of_jumping_clocks": clocks.tally.harm,
        "harm_of_a_full_host_tier": tier.tally.harm,
    }
    print(json.dumps({"kind": args.kind, **killed.figures(), **silent, **around}))


if __name__ == "__main__":
    main()
