"""How fast Octavo is on this machine, through gRPC and inside the worker.

Workload W, one stream of 128 tokens and one prompt of 3,500 (as in benchmarks.peers); steps of 1 to 64 sequences with 256 to
4,096 tokens of context each, and the share of such a step that is spent outside of model and sampler; how full the pages are
that sequences hold, against contiguous reservation; and a prompt of 5,000 tokens that arrives among 16 streams, with chunked
prefill and with steps that take it whole.

Contexts that the model or the memory has no room for are left out and named. One line of JSON a row, then a table. Rows of
a run that was interrupted are kept.
"""

import argparse
import asyncio
import json
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from octavo_client import AsyncClient
from octavo_client.default_model import find_default_model
from octavo_client.local import LocalServer
from octavo_worker.cache import free_memory
from octavo_worker.runner import Runner

from benchmarks import utilisation
from benchmarks.decoding import CONTEXTS, NUM_STEPS, SEQUENCES, decode_inside, decode_served, pages_needed
from benchmarks.interference import LONG_PROMPT, interfere
from benchmarks.machine import Watch, machine
from benchmarks.peers.contestants import Contestant, runner_command
from benchmarks.peers.measure import measure
from benchmarks.peers.report import FIGURES, cost, summarise
from benchmarks.service import start_runner
from benchmarks.store import ROOT, Entry, Store, digest
from benchmarks.table import Cell, table
from benchmarks.workload import workload

HOME = ROOT / ".cache" / "bench"
RUNNERS = {"grpc": "octavo_service", "inside": "octavo_inside"}
REPEATS = 2
CHUNKS = {"chunked": 512, "whole": 5120}
"""Most tokens of a step, for the long prompt among streams."""
MEMORY_SHARE = 0.6
"""Of what is free, for the pages of the longest contexts."""
PAGES_OF_W = 600
"""Too few for all of W at once, so that most of the run is at saturation."""


@dataclass(frozen=True)
class Bench:
    """What is measured, and where its rows are kept."""

    model: Path
    flags: Sequence[str]
    """Of the worker."""
    store: Store

    def row(self, name: str, make: Callable[[], Entry]) -> Entry:
        """A row, with the share of the processors that others had meanwhile; printed."""

        def watched() -> Entry:
            watch = Watch()
            return {**make(), "others_share": watch.others_share()}

        entry = self.store.get(name, watched)
        print(json.dumps({"row": name, **entry}), flush=True)
        return entry

    def served(self, *flags: str, scheduler: Sequence[str] = ()) -> LocalServer:
        """A server, with more flags."""
        return LocalServer(self.model, worker_flags=[*self.flags, *flags], scheduler_flags=scheduler)


def call(address: str, function: Callable[[AsyncClient], Awaitable[Entry]]) -> Entry:
    """What a function does with a client."""

    async def connected() -> Entry:
        async with AsyncClient(address) as client:
            return await function(client)

    return asyncio.run(connected())


def work(bench: Bench, way: str) -> Entry:
    """W, one stream and the long prompt."""
    command = runner_command(sys.executable, RUNNERS[way], bench.model, *bench.flags)
    contestant = Contestant(way, "octavo", lambda: command)
    return summarise("octavo", [measure(contestant, HOME / f"{way}.log", 0, REPEATS)])


def decoding(bench: Bench) -> None:
    """Inside first; its memory is given back before the server takes as much."""
    size, fitting = contexts(start_runner(bench.model, [*bench.flags, "--pages=64"]))
    pages = pages_needed(max(SEQUENCES), max(fitting), size) + max(SEQUENCES)
    decoding_inside(bench, start_runner(bench.model, [*bench.flags, f"--pages={pages}"]), fitting)
    with bench.served(f"--pages={pages}") as server:
        for context in fitting:
            for sequences in SEQUENCES:
                decode = partial(decode_served, sequences=sequences, context=context)
                bench.row(decode_row(sequences, context, "grpc"), partial(call, server.address, decode))


def contexts(runner: Runner) -> tuple[int, list[int]]:
    """Tokens of a page; those contexts of which model and memory can hold the most sequences. Says which are left out."""
    size, page_bytes = runner.config.page_size, runner.cache.geometry.page_bytes
    room = free_memory() * MEMORY_SHARE
    fitting = []
    for context in CONTEXTS:
        need = pages_needed(max(SEQUENCES), context, size) * page_bytes
        if context + NUM_STEPS < runner.slots.max_context and need < room:
            fitting.append(context)
        else:
            why = f"{max(SEQUENCES)} of them take {need / 2**30:.1f} GiB, or the model has no such context"
            print(json.dumps({"row": f"decode with {context} tokens of context", "left_out": why}))
    return size, fitting


def decoding_inside(bench: Bench, runner: Runner, fitting: Sequence[int]) -> None:
    for context in fitting:
        for sequences in SEQUENCES:
            decode = partial(decode_inside, runner, sequences, context)
            bench.row(decode_row(sequences, context, "inside"), decode)


def decode_row(sequences: int, context: int, way: str) -> str:
    return f"decode {sequences} x {context} {way}"


def filling(bench: Bench) -> Entry:
    """How many of the held KV slots hold a token on W, page by page and with contiguous reservation."""
    with bench.served(f"--pages={PAGES_OF_W}", "--swap-space=1GiB") as server:
        return asyncio.run(utilisation.run(server.address, workload()))


def arriving(bench: Bench, step_tokens: int) -> Entry:
    """A long prompt among streams, with so many tokens in a step at most."""
    flag = f"--max-step-tokens={step_tokens}"
    with bench.served(flag, scheduler=[flag, "--no-prefix-cache"]) as server:
        return call(server.address, interfere)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="model folder or GGUF file (default: the one that was installed)")
    parser.add_argument("--worker-flags", default="--dtype=bfloat16", help="in one string (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers and engines are ended
    options = read_options()
    model, flags = options.model or find_default_model(), shlex.split(options.worker_flags)
    bench = Bench(model, flags, Store(HOME / f"rows-{digest(model.resolve(), flags)}.jsonl"))
    for way in RUNNERS:
        bench.row(f"work {way}", partial(work, bench, way))
    decoding(bench)
    bench.row("filling", partial(filling, bench))
    for name, step_tokens in CHUNKS.items():
        bench.row(arrival_row(name), partial(arriving, bench, step_tokens))
    report(bench.store.entries)
    bench.store.remove()
    return 0


def report(entries: Mapping[str, Entry]) -> None:
    """Tables, then one line of JSON."""
    served, inside = (entries[f"work {way}"] for way in RUNNERS)
    ways = [[way, *(entries[f"work {way}"].get(figure) for figure in FIGURES)] for way in RUNNERS]
    print(table(["tokens per second", "W", "one stream", "prefill"], ways), end="\n\n")
    print(table(["sequences x context", "grpc", "inside", "outside of kernels %"], decode_rows(entries)), end="\n\n")
    print(table(["milliseconds", "first token", "gap before", "gap meanwhile", "longest gap"], arrival_rows(entries)))
    figures = {
        "target": "bench",
        "machine": machine(),
        **{figure: served.get(figure) for figure in FIGURES},
        **{f"{figure}_inside": inside.get(figure) for figure in FIGURES},
        "service_cost": cost(served.get("w_tok_s"), inside.get("w_tok_s")),
        "outside_kernels": entries[decode_row(max(SEQUENCES), CONTEXTS[0], "inside")]["outside_share"],
        "page_utilisation": entries["filling"]["saturated_slot_utilisation"],
        "contiguous_utilisation": entries["filling"]["contiguous_utilisation"],
    }
    print(json.dumps(figures))


def decode_rows(entries: Mapping[str, Entry]) -> list[list[Cell]]:
    """Tokens per second of all sequences together."""
    rows: list[list[Cell]] = []
    for context in CONTEXTS:
        for sequences in SEQUENCES:
            served, inside = (entries.get(decode_row(sequences, context, way), {}) for way in RUNNERS)
            outside = inside.get("outside_share")
            percent = None if outside is None else 100 * outside
            rows.append([f"{sequences} x {context}", served.get("rate"), inside.get("rate"), percent])
    return rows


def arrival_rows(entries: Mapping[str, Entry]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name, step_tokens in CHUNKS.items():
        entry = entries[arrival_row(name)]
        seconds = (entry[key] for key in ("first_token", "median_before", "median_meanwhile", "longest_meanwhile"))
        rows.append([f"{LONG_PROMPT} tokens, steps of {step_tokens}", *(1e3 * value for value in seconds)])
    return rows


def arrival_row(name: str) -> str:
    return f"{LONG_PROMPT} tokens arrive, {name}"


if __name__ == "__main__":
    sys.exit(main())
