"""Octavo beside OpenVINO GenAI, vLLM, llama.cpp and static batches, alternately in one run, on the same token ids.

The peers are installed into environments of their own in .cache/peers, their model files are made from the one GGUF file.
Then come rounds; in each of them every contestant is started anew, warmed up, and measured alone on workload W (see
benchmarks.workload), on one stream of 128 tokens and on one prompt of 3,500 tokens. Each round begins with another one.
Static batches are so slow that they take part in the first round only. Octavo takes part through gRPC, with
scheduler, worker and client on the same processors, and inside the worker, on recorded plans. Its int4 reads a GGUF file
that is 4-bit already: that says how fast such a file is, not how well 16-bit weights bear being rounded to 4 bits.

Prints a table, then one line of JSON, which is also written to a file. Rates are the best of all rounds; "others" is the
share of the processors that other programs had meanwhile, which should be 0. Installed peers and finished measurements of a
run that was interrupted are kept.
"""

import argparse
import json
import shlex
import signal
import sys
from pathlib import Path

from octavo_client.default_model import find_default_model

from benchmarks.machine import machine
from benchmarks.peers.contestants import Contestant, contestants
from benchmarks.peers.install import HOME, Models
from benchmarks.peers.measure import measure, say
from benchmarks.peers.report import as_table, ratios, summarise
from benchmarks.store import Store, digest


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that engines are ended
    options = read_options()
    model = options.model or find_default_model()
    everybody = contestants(Models(model), shlex.split(options.worker_flags))
    chosen = [each for each in everybody if not options.only or any(word in each.name for word in options.only)]
    store = Store(HOME / f"measured-{digest(model.resolve(), options.repeats, options.worker_flags)}.jsonl")
    for number in range(options.rounds):
        for contestant in rotated(chosen, number):
            one_round(contestant, number, store, options.repeats)
    figures = report(chosen, store, options.rounds)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(figures, indent=2) + "\n")
    store.remove()
    print(json.dumps(figures))
    return 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="GGUF file (default: the one that was installed)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=2, help="measurements in a round (default: %(default)s)")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="contestants whose names hold a word")
    parser.add_argument("--worker-flags", default="", help="more flags of `octavo worker`, in one string")
    parser.add_argument("--output", type=Path, default=HOME / "results.json", help="(default: %(default)s)")
    return parser.parse_args()


def one_round(contestant: Contestant, number: int, store: Store, repeats: int) -> None:
    """Measure it, unless that is done or it does not take part."""
    if contestant.kind == "static":
        if number:
            return
        repeats = 1
    log = HOME / f"{contestant.name.replace(' ', '-')}.log"
    entry = store.get(key(contestant, number), lambda: measure(contestant, log, number, repeats))
    say(contestant.name, number, entry)


def key(contestant: Contestant, number: int) -> str:
    """Of an entry."""
    return f"{contestant.name}, round {number}"


def rotated(items: list[Contestant], number: int) -> list[Contestant]:
    """Another one begins in each round, about a third further on."""
    start = number * max(1, len(items) // 3) % len(items)
    return items[start:] + items[:start]


def report(chosen: list[Contestant], store: Store, rounds: int) -> dict[str, object]:
    """Prints the table."""
    entries = {
        each.name: [store.entries[key(each, n)] for n in range(rounds) if key(each, n) in store.entries]
        for each in chosen
    }
    summaries = {each.name: summarise(each.kind, entries[each.name]) for each in chosen}
    answers = {name: found[-1].get("answers", []) for name, found in entries.items() if found}
    compared = ratios(summaries, answers)
    print(as_table(summaries))
    print("\n".join(f"{name:26}" + ("–" if value is None else f"{value:.3f}") for name, value in compared.items()))
    return {"target": "bench-peers", "machine": machine(), **compared, "peers": summaries}


if __name__ == "__main__":
    sys.exit(main())
