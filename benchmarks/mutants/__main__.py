"""Breaks the scheduler in many ways and sees whether the simulation notices. Prints one line of JSON.

    python -m benchmarks.mutants [--by-rule 100] [--seeds 1000] [--only TEXT]

Each mutant runs the simulation in a process of its own until a seed kills it; the real files are never touched. Survivors
are printed with their difference. Those that cannot be told from the original are listed in explained.txt, with the reason.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from benchmarks.mutants.rules import ROOT, Mutant, sample
from benchmarks.mutants.written import explained, written

TARGET = 0.95


def run(mutant: Mutant, seeds: int) -> dict[str, object]:
    job = {"module": mutant.module, "path": str(mutant.path), "source": mutant.source, "seeds": seeds}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mutants.child"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if done.returncode != 0:
        return {"killed": True, "seed": -1, "why": f"the process ended: {done.stderr[-200:]}"}
    found: dict[str, object] = json.loads(done.stdout)
    return found


def key(mutant: Mutant) -> tuple[str, str]:
    return mutant.module, "\n".join(line for line in mutant.diff.splitlines() if line.startswith(("-", "+")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by-rule", type=int, default=100, help="how many sites of the syntax tree are sampled")
    parser.add_argument("--seeds", type=int, default=1000, help="after so many a mutant has survived")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="mutants with this text in their name")
    options = parser.parse_args()
    mutants = [mutant for mutant in (*written(), *sample(options.by_rule)) if options.only in mutant.name]
    survivors, reasons = list[Mutant](), explained()
    with ThreadPoolExecutor(options.processes) as threads:
        for mutant, found in zip(mutants, threads.map(lambda m: run(m, options.seeds), mutants), strict=True):
            if found["killed"]:
                print(f"killed by seed {found['seed']}: {mutant.name}: {found['why']}", flush=True)
            else:
                survivors.append(mutant)
                why = reasons.get(key(mutant), "not explained")
                print(f"SURVIVED: {mutant.name} in {mutant.module}\n{mutant.diff}\n  {why}", flush=True)
    killed = len(mutants) - len(survivors)
    unexplained = [mutant.name for mutant in survivors if key(mutant) not in reasons]
    line = {
        "target": "mutants",
        "mutants": len(mutants),
        "by_rule": sum(mutant.is_by_rule for mutant in mutants),
        "killed": killed,
        "share": round(killed / len(mutants), 4),
        "survivors": [mutant.name for mutant in survivors],
        "unexplained": unexplained,
    }
    print(json.dumps(line))
    return 0 if killed >= TARGET * len(mutants) and not unexplained else 1


if __name__ == "__main__":
    sys.exit(main())
