"""The worker's configuration, read once."""

import re
from dataclasses import dataclass
from pathlib import Path

from octavo_worker.errors import ConfigError

DTYPES = ("auto", "float32", "bfloat16", "float16")
WEIGHTS = (*DTYPES, "fp8", "int8", "int8_groups", "int4")
KV_DTYPES = (*DTYPES, "int8", "fp8")
FULL_NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Everything a worker is told. Raises ConfigError with a sentence that says how to mend a bad value."""

    model: Path
    scheduler: str = ""  # where to dial; not needed by a Runner alone
    worker_id: str = "worker"
    device: str = "cpu"
    dtype: str = "auto"  # of activations
    weights: str = "auto"  # their format; auto: as dtype
    kv_dtype: str = "auto"  # of K and V in pages; auto: as dtype
    kernels: str | None = None
    ops: str | None = None  # entry point of a package that replaces some of them
    invariant: bool = False
    page_size: int = 16
    pages: int | None = None  # usable device pages; else from the two below
    kv_cache_memory: int | None = None  # bytes
    kv_memory_share: float = 0.3  # of the main memory that is free once the weights are loaded
    gpu_memory_utilization: float = 0.9  # of a GPU's memory, for weights, activations and pages together
    host_pages: int | None = None  # usable host pages; else from swap_space
    swap_space: int = 0  # bytes
    max_slots: int = 64
    max_step_tokens: int = 512
    max_context: int | None = None  # tokens; None: the model's
    threads: int | None = None  # None: one a core
    tensor_parallel_size: int = 1  # ranks that share the work of every matrix
    curve_key: Path | None = None  # this worker's secret key
    curve_server_key: Path | None = None  # the scheduler's public key
    lifeline: int | None = None  # file descriptor; the worker ends when it reaches end of file

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", Path(self.model))
        for name, choices in (("dtype", DTYPES), ("weights", WEIGHTS), ("kv_dtype", KV_DTYPES)):
            object.__setattr__(self, name, one_of(name, getattr(self, name), choices))
        self.require("--page-size", self.page_size, 1, 1024)
        self.require("--max-slots", self.max_slots, 1, 65_535)
        self.require("--max-step-tokens", self.max_step_tokens, 1, 2**20)
        self.require("--pages", self.pages, 1, 2**31 - 2)
        self.require("--host-pages", self.host_pages, 0, 2**31 - 2)
        self.require("--max-context", self.max_context, 2, 2**31 - 2)
        self.require("--threads", self.threads, 1, 1024)
        self.require("--tensor-parallel-size", self.tensor_parallel_size, 1, 64)
        self.require("--kv-cache-memory", self.kv_cache_memory, 1, 2**60)
        self.require("--swap-space", self.swap_space, 0, 2**60)
        for flag, share, most in (
            ("--kv-memory-share", self.kv_memory_share, 0.95),
            ("--gpu-memory-utilization", self.gpu_memory_utilization, 0.98),
        ):
            if not 0 < share <= most:
                raise ConfigError(f"{flag} lies above 0 and up to {most}, not at {share}")
        if (self.curve_key is None) != (self.curve_server_key is None):
            raise ConfigError("--curve-key and --curve-server-key go together; give both or neither")

    def require(self, flag: str, value: int | None, low: int, high: int) -> None:
        """Raise ConfigError unless `value` is None or in low..high."""
        if value is not None and not low <= value <= high:
            raise ConfigError(f"{flag} lies between {low} and {high}, not at {value}")

    @property
    def wants_curve(self) -> bool:
        """Whether the link is encrypted."""
        return self.curve_key is not None


def one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    """The full name of a choice; short ones will do."""
    full = FULL_NAMES.get(value, value)
    if full not in choices:
        raise ConfigError(f"--{name.replace('_', '-')} is one of {', '.join(choices)}, not {value!r}")
    return full


def parse_bytes(text: str) -> int:
    """Bytes of "2GiB", "512 MB" or "1048576"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2] not in UNITS:
        raise ConfigError(f"{text!r} is not a size; write it like 2GiB, 512MiB or 1048576")
    return int(float(match[1]) * UNITS[match[2]])
