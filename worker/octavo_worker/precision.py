"""What a worker computes in."""

import sys
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from hashlib import sha256
from typing import Any

from octavo_kernels import cpu, custom
from octavo_kernels.choice import KernelsUnavailable, pick
from octavo_kernels.ops import Ops

from octavo_worker.config import WorkerConfig
from octavo_worker.errors import ConfigError

NO_CPU_KERNELS = (
    "octavo worker: there are no CPU kernels here, so this worker runs on `reference`, which is many times slower; "
    "install a C compiler and run `python -m octavo_kernels.cpu.compile`"
)


OUT_OF_RANGE = (
    "octavo worker: this model was made in bfloat16 and numbers in float16 end at 65,504; where answers end with an error, "
    "try --dtype bfloat16 or float32"
)


@dataclass(frozen=True, slots=True)
class Precision:
    """Names of dtypes and formats, as in Ops."""

    dtype: str  # of activations
    weights: str
    cache: str  # of K and V
    ops: str = ""  # name and version of ops of somebody's own

    def digest(self, weights: bytes) -> bytes:
        """SHA-256 of all that answers follow from: the weights' own digest, the precision, ops that are not ours."""
        return sha256("/".join((weights.hex(), *filter(None, astuple(self)))).encode()).digest()


def choose(config: WorkerConfig, ops: Ops) -> Precision:
    """What the configuration asks for. "auto": what the kernels do best, and the others like it. Raises ConfigError."""
    dtype = one_of("--dtype", config.dtype, ops.dtypes[0], ops.dtypes, ops)
    return Precision(
        dtype=dtype,
        weights=one_of("--weights", config.weights, dtype, ops.formats, ops),
        cache=one_of("--kv-dtype", config.kv_dtype, dtype, ops.cache_dtypes, ops),
        ops=custom.identity(config.ops) if config.ops else "",
    )


def one_of(flag: str, asked: str, default: str, choices: tuple[str, ...], ops: Ops) -> str:
    value = default if asked == "auto" else asked
    if value not in choices:
        raise ConfigError(f"{flag} {value} is nothing that the {ops.name} kernels do; they do {', '.join(choices)}")
    return value


def warn_of_range(precision: Precision, config: Mapping[str, Any]) -> None:
    """Say so where a model whose numbers were made in bfloat16 is computed in float16, which ends at 65,504."""
    made = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    if made == "bfloat16" and "float16" in (precision.dtype, precision.weights, precision.cache):
        print(OUT_OF_RANGE, file=sys.stderr)


def pick_kernels(config: WorkerConfig) -> Ops:
    """Says so where the slow ones are taken for want of others. Raises ConfigError."""
    if config.device != "cpu" and config.device.partition(":")[0] != "cuda":
        raise ConfigError(f"--device is cpu, cuda or cuda:N, not {config.device}")
    if config.device == "cpu" and config.kernels is None and not cpu.is_built():
        print(NO_CPU_KERNELS, file=sys.stderr)
    try:
        ops = pick(
            config.device, config.kernels, dtype=config.dtype, invariant=config.invariant, threads=config.threads
        )
    except KernelsUnavailable as error:
        raise ConfigError(str(error)) from error
    try:
        return custom.customise(ops, config.ops) if config.ops else ops
    except KernelsUnavailable as error:
        raise ConfigError(f"--ops: {error}") from error
