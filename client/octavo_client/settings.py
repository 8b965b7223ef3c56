"""What an `LLM` may be told of its scheduler and workers, and the flags that say it to them."""

from collections.abc import Mapping
from typing import Any, TypedDict


class Settings(TypedDict, total=False):
    """What is missing is left to the programs, as is what is None."""

    device: str | None  # where workers compute: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1" and so on
    block_size: int | None  # tokens of a page (16)
    max_num_seqs: int | None  # sequences that run at once
    max_num_batched_tokens: int | None  # tokens of a step
    max_chunk: int | None  # of them those of one sequence
    max_model_len: int | None  # longest sequence, in tokens
    enable_prefix_caching: bool | None  # keep pages of ended sequences for others that begin alike (True)
    dtype: str | None  # what is computed in: "auto", "float32", "bfloat16" or "float16"
    weights: str | None  # their format: "auto" (as dtype), "float32", "bfloat16", "fp8", "int8" or "int4"
    kv_cache_dtype: str | None  # of K and V in pages: "auto" (as dtype), a dtype, "int8" or "fp8"
    gpu_memory_utilization: float | None  # share of a GPU's memory for weights, activations and pages together (0.9)
    kv_memory_share: float | None  # on a CPU: share of the free main memory for pages (0.3)
    kv_cache_memory: int | str | None  # or the size of all pages itself, in bytes or like "2GiB"
    swap_space: float | None  # GiB of host memory for swapped pages, per worker
    kernels: str | None  # name of the implementation
    ops: str | None  # name of an installed package's own ones, or FILE.py:NAME
    threads: int | None  # of each worker; one a core otherwise
    tensor_parallel_size: int | None  # processes of each worker, which share each matrix and the KV heads
    preempt: str | None  # "auto", "swap" or "drop"
    served_model_name: str | None  # in requests


SCHEDULER = {
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-step-tokens",
    "max_chunk": "--max-chunk",
    "max_model_len": "--max-context",
    "preempt": "--preempt",
    "served_model_name": "--served-model-name",
}
WORKER = {
    "device": "--device",
    "block_size": "--page-size",
    "max_num_seqs": "--max-slots",
    "max_num_batched_tokens": "--max-step-tokens",
    "max_model_len": "--max-context",
    "dtype": "--dtype",
    "weights": "--weights",
    "kv_cache_dtype": "--kv-dtype",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "kv_memory_share": "--kv-memory-share",
    "kv_cache_memory": "--kv-cache-memory",
    "swap_space": "--swap-space",
    "kernels": "--kernels",
    "ops": "--ops",
    "threads": "--threads",
    "tensor_parallel_size": "--tensor-parallel-size",
}
NAMES = SCHEDULER.keys() | WORKER.keys() | {"enable_prefix_caching"}


def scheduler_flags(settings: Mapping[str, Any]) -> list[str]:
    """Words of its command line."""
    switch = ["--no-prefix-cache"] if settings.get("enable_prefix_caching") is False else []
    return _flags(settings, SCHEDULER) + switch


def worker_flags(settings: Mapping[str, Any]) -> list[str]:
    """Words of its command line. Raises TypeError for a setting that neither program has."""
    unknown = settings.keys() - NAMES
    if unknown:
        raise TypeError(f"LLM has no setting {', '.join(sorted(unknown))}")
    return _flags(settings, WORKER)


def _flags(settings: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    given = [(name, value) for name, value in settings.items() if name in names and value is not None]
    return [word for name, value in given for word in (names[name], _text(name, value))]


def _text(name: str, value: object) -> str:
    return f"{round(float(str(value)) * 1024)}MiB" if name == "swap_space" else str(value)
