"""How long from the start of a program to the first token of its model: a GGUF file against engine folders made of it.

`serve` is `octavo serve MODEL` as a process: until it says that it serves, and until a client that waits for that line has
the first token of a prompt of four words. `llm` is a program that makes an `LLM`, or loads an engine, and generates a token:
everything from exec on, imports too. Runs go round all of them in turn, so that none has the quiet moments.

Prints a table of medians in seconds, then one line of JSON. Files are in the page cache after the first run, which is shown.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo_client import Client, SamplingParams
from octavo_client.default_model import find_default_model
from octavo_client.engine import flags_of, prepare
from octavo_client.results import Delta

READY = re.compile(r"^octavo: serving .+ on (\S+) with ")
PROMPT = "Once upon a time"
ONE_TOKEN = """
import sys
from octavo_client import LLM, SamplingParams
make = LLM.load if sys.argv[2] == "engine" else LLM
with make(sys.argv[1]) as llm:
    llm.generate(sys.argv[3], SamplingParams(max_tokens=1, temperature=0.0))
    print("token", flush=True)
"""


def serve(model: Path, flags: list[str]) -> dict[str, float]:
    """Seconds from exec until `octavo serve` is ready, and until the first token."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "octavo_client", "serve", str(model), "--listen", f"unix:{folder}/s", *flags]
        with started([*command, "--quiet"]) as (since, lines):
            match = next(found for line in lines if (found := READY.match(line)))
            ready = since()
            with Client(match[1]) as client:
                events = client.stream(PROMPT, SamplingParams(max_tokens=1, temperature=0.0))
                next(event for event in events if isinstance(event, Delta) and event.token_ids)
                return {"ready": ready, "first_token": since()}


def llm(model: Path, flags: list[str]) -> dict[str, float]:
    """Seconds from exec until a program that makes an LLM has one token; without flags only."""
    kind = "engine" if model.is_dir() else "model"
    with started([sys.executable, "-c", ONE_TOKEN, str(model), kind, PROMPT]) as (since, lines):
        assert next(lines) == "token\n", "the program failed, see above"
        return {"first_token": since()}


@contextmanager
def started(command: list[str]) -> Iterator[tuple[Callable[[], float], Iterator[str]]]:
    """A process: seconds since it was started, and its lines. Ended at the end."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield lambda: time.perf_counter() - start, iter(process.stdout)
        finally:
            process.terminate()


def measure(models: dict[str, tuple[Path, list[str]]], runs: int) -> dict[str, dict[str, float]]:
    """Medians by model and figure; of all runs but the first, which finds files that no cache holds."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in models}
    for _ in range(runs + 1):
        for name, (model, flags) in models.items():
            figures = {f"serve_{key}": seconds for key, seconds in serve(model, flags).items()}
            figures |= {f"llm_{key}": seconds for key, seconds in llm(model, flags).items()} if not flags else {}
            for key, seconds in figures.items():
                found[name].setdefault(key, []).append(seconds)
    medians = {}
    for name, times in found.items():
        medians[name] = {key: round(statistics.median(each[1:]), 3) for key, each in times.items()}
        medians[name]["serve_first_token_of_first_run"] = round(times["serve_first_token"][0], 3)
    return medians


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="GGUF file or folder (default: the one that was installed)")
    parser.add_argument("--runs", type=int, default=5, help="of each, after a first one (default: %(default)s)")
    parser.add_argument("--kernels", help="default: the best of this machine")
    parser.add_argument(
        "--weights", nargs="+", default=["auto", "int4"], help="of the engine folders (default: %(default)s)"
    )
    options = parser.parse_args()
    model = options.model or find_default_model()
    with tempfile.TemporaryDirectory() as folder:
        models = {"model": (model, flags_of({"kernels": options.kernels}))}
        for weights in options.weights:
            flags = flags_of({"weights": weights, "kernels": options.kernels})
            prepare(model, Path(folder, weights), flags)
            models[f"engine {weights}"] = (Path(folder, weights), [])
        medians = measure(models, options.runs)
    for name, figures in medians.items():
        print(f"{name:16}" + "  ".join(f"{key.replace('_', ' ')} {seconds:.2f}" for key, seconds in figures.items()))
    print(json.dumps({"target": "bench-start", "runs": options.runs, **medians}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
