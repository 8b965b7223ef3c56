"""Runs the kernels on the GPU that is here, and measures them; docs/gpu-roofline.md says what they should need.

    python -m benchmarks.gpu            all of it, meant to take under eight minutes; writes benchmarks/gpu/measured.json
    python -m benchmarks.gpu --paper    on paper: nothing is measured, but all of the script runs

Without a GPU it says so, and runs nothing. Prints a table, and the figures as one line of JSON.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

if "--paper" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when kernels are defined

import torch
from octavo_kernels.choice import KernelsUnavailable

from benchmarks.gpu import attention, serving
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.correct import check_all
from benchmarks.roofline import DECODES, GPUS, LLAMA_1B, LLAMA_8B, MEASURED, PREFILLS, Gpu, Model
from benchmarks.table import table

Figures = Iterator[tuple[str, float]]
TINY = Model("tiny", 2, 64, 4, 2, 16, 96, 160)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is checked and measured."""

    cases: int
    models: tuple[Model, ...]
    decodes: tuple[tuple[int, int], ...]
    prefills: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    context: int
    steps: int
    swapped: int  # pages


WHOLE = Size(200, (LLAMA_1B, LLAMA_8B), DECODES, PREFILLS, (1, 32, 128, 256), 1024, 40, 512)
SMALL = Size(2, (TINY,), ((1, 16), (2, 16)), ((16, 0),), (1, 2), 16, 3, 2)


def figures(bench: Bench, size: Size) -> Figures:
    """All of them, as they come."""
    yield from check_all(bench, size.cases)
    for model in size.models:
        yield from attention.decode_times(bench, model, size.decodes)
        yield from attention.prefill_times(bench, model, size.prefills)
    for model in size.models:
        yield from served(bench, model, size)


def served(bench: Bench, model: Model, size: Size) -> Figures:
    """A worker of a shape."""
    slots, context = max(size.rows) + 1, size.context + 8 * size.steps
    if not bench.fits(model.weight_bytes * 1.5 / model.layers + slots * context * model.layers * model.kv_bytes(1)):
        return
    runner = serving.random_runner(model, bench.ops, slots=slots, context=context, host_pages=size.swapped)
    for rows in size.rows:
        seconds = serving.step_time(runner, rows, size.context, size.steps)
        yield f"step_ms {model.name} {rows} {size.context}", seconds * 1e3
        yield f"decode_tokens_s {model.name} {rows} {size.context}", rows / seconds
    computed, sampled = serving.load_rate(runner, max(size.rows) // 2, size.context, size.steps)
    yield f"load_computed_tokens_s {model.name} {max(size.rows) // 2} {size.context}", computed
    yield f"load_sampled_tokens_s {model.name} {max(size.rows) // 2} {size.context}", sampled
    yield f"swap_gb_s {model.name} {size.swapped} 16", serving.swap_rate(runner, size.swapped) / 1e9


def known_gpu(name: str) -> Gpu | None:
    """Its maker's figures, if we have them."""
    return next((gpu for gpu in GPUS if gpu.name.split()[0] in name), None)


def report(name: str, found: dict[str, float]) -> str:
    """A table, and what attention reaches of a GPU whose figures are known."""
    lines = [table(["figure", name], list(found.items()))]
    gpu = known_gpu(name)
    for model in (LLAMA_1B, LLAMA_8B) if gpu else ():
        assert gpu is not None
        for what, share in attention.shares(model, gpu.bandwidth, gpu.matrix, found).items():
            lines.append(f"{model.name}: attention {what.replace('_', ' ')}: {share:.0%}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paper", action="store_true", help="run everything in Triton's interpreter, small")
    if parser.parse_args().paper:
        from octavo_kernels.triton.paper import Paper

        print(report("paper", dict(figures(Bench.on(Paper()), SMALL))))
        return 0
    if not torch.cuda.is_available():
        print("there is no GPU here: nothing was run")
        return 0
    from octavo_kernels.triton.cuda import Cuda

    try:
        bench = Bench.on(Cuda())
    except KernelsUnavailable as error:
        print(f"nothing was run: {error}")
        return 0
    name, found = torch.cuda.get_device_name(), {}
    for figure, value in figures(bench, WHOLE):
        found[figure] = value
        print(f"{figure}: {value:.4g}", file=sys.stderr, flush=True)
        MEASURED.write_text(json.dumps({"gpu": name, **found}, indent=1) + "\n", encoding="utf-8")
    print(report(name, found))
    print(json.dumps({"gpu": name, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
