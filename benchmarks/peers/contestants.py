"""Who takes part: Octavo in several precisions, through gRPC and inside the worker, and its peers."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.peers.install import Models, ensure, python

Kind = Literal["octavo", "peer", "static", "tool"]
SLOTS = 16
BATCH = 8
LONG_PROMPT = 3500
FORMATS: dict[str, list[str]] = {
    "bf16": ["--dtype=bfloat16", "--weights=bfloat16"],
    "int8": ["--dtype=bfloat16", "--weights=int8", "--kv-dtype=int8"],
    "int4": ["--dtype=bfloat16", "--weights=int4"],
}


@dataclass(frozen=True)
class Contestant:
    """One line of the table.

    A "tool" is no server: it is run once and prints its figures. A "static" one is so slow that it is measured once.
    """

    name: str
    kind: Kind
    command: Callable[[], list[str]]
    """Makes what is needed and gives the command line. Raises NotThere."""


def contestants(models: Models, worker_flags: Sequence[str]) -> list[Contestant]:
    """All of them, in the order of the table."""
    return [*octavos(models.gguf, worker_flags), *peers(models)]


def octavos(model: Path, worker_flags: Sequence[str]) -> list[Contestant]:
    ways = {"": "octavo_service", " inside": "octavo_inside"}
    return [
        Contestant(
            f"octavo {precision}{way}",
            "octavo",
            lambda runner=runner, flags=flags: runner_command(sys.executable, runner, model, *flags, *worker_flags),  # type: ignore[misc]
        )
        for precision, flags in FORMATS.items()
        for way, runner in ways.items()
    ]


def peers(models: Models) -> list[Contestant]:
    threads = os.cpu_count() or 1

    def openvino() -> list[str]:
        return in_environment("openvino", "openvino_engine", models.quantised("F16"))

    def vllm() -> list[str]:
        return in_environment("vllm", "vllm_engine", models.safetensors())

    def static() -> list[str]:
        return in_environment("transformers", "static_batches", models.safetensors(), BATCH)

    def llama_server(kind: str) -> Callable[[], list[str]]:
        return lambda: in_environment("llama", "llama_server", models.quantised(kind), SLOTS, threads)

    def llama_bench(model: Callable[[], Path]) -> Callable[[], list[str]]:
        return lambda: in_environment("llama", "llama_bench", model(), threads, LONG_PROMPT)

    return [
        Contestant("openvino f16", "peer", openvino),
        Contestant("vllm bf16", "peer", vllm),
        Contestant("llama-server bf16", "peer", llama_server("BF16")),
        Contestant("llama-server q8_0", "peer", llama_server("Q8_0")),
        Contestant("llama-bench bf16", "tool", llama_bench(lambda: models.quantised("BF16"))),
        Contestant("llama-bench q8_0", "tool", llama_bench(lambda: models.quantised("Q8_0"))),
        Contestant("llama-bench as shipped", "tool", llama_bench(lambda: models.gguf)),
        Contestant("transformers static", "static", static),
    ]


def in_environment(name: str, runner: str, *arguments: object) -> list[str]:
    ensure(name)
    return runner_command(python(name), runner, *arguments)


def runner_command(interpreter: str | Path, runner: str, *arguments: object) -> list[str]:
    return [str(interpreter), "-m", f"benchmarks.peers.runners.{runner}", *map(str, arguments)]
