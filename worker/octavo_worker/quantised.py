"""Matrices of Hugging Face folders that AWQ or GPTQ have quantised to 4 bits. What else there is, is refused."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from octavo_kernels.int4 import Int4, from_awq, from_gptq

from octavo_worker.errors import ModelError
from octavo_worker.folder import Folder

Read: TypeAlias = Callable[[Folder, str], Int4]
"""(folder, "model.layers.0.mlp.up_proj"): its weight."""
GPTQ_V2 = "gptq_v2"


def quantised_name(name: str) -> str:
    """Of the tensor that stands for a .weight."""
    return f"{name.removesuffix('weight')}qweight" if name.endswith(".weight") else name


def reader_of(config: dict[str, Any] | None) -> Read | None:
    """What reads the matrices of a folder whose config.json has this `quantization_config`. Raises ModelError."""
    if config is None:
        return None
    if not isinstance(config, dict):
        raise ModelError("config.json has a quantization_config that is no object")
    method = str(config.get("quant_method", "unknown"))
    version = str(config.get("version", "gemm") if method == "awq" else config.get("checkpoint_format", "gptq")).lower()
    versions = {"awq": ("gemm",), "gptq": ("gptq", GPTQ_V2)}
    bits, size = config.get("bits", config.get("w_bit")), config.get("group_size", config.get("q_group_size"))
    if method not in versions:
        raise ModelError(f"weights quantised by {method!r} are not supported; awq and gptq in 4 bits are")
    if version not in versions[method]:
        raise ModelError(f"{method} in the layout {version!r} is not supported; {' and '.join(versions[method])} are")
    if bits != 4:
        raise ModelError(f"{method} in {bits} bits is not supported; 4 bits are")
    if not isinstance(size, int) or (size != -1 and (size < 1 or size % 32)):
        raise ModelError(f"{method} in groups of {size} inputs is not supported; multiples of 32 and -1 are")
    if method == "awq":
        return lambda folder, name: read_awq(folder, name, size)
    return lambda folder, name: read_gptq(folder, name, size, is_v2=version == GPTQ_V2)


def read_awq(folder: Folder, name: str, size: int) -> Int4:
    """`size`: inputs of a group, -1 where all are one. Raises ModelError."""
    return made(name, size, lambda: from_awq(*(part(folder, name, kind) for kind in ("qweight", "qzeros", "scales"))))


def read_gptq(folder: Folder, name: str, size: int, *, is_v2: bool) -> Int4:
    """Likewise."""
    qweight, qzeros, scales = (part(folder, name, kind) for kind in ("qweight", "qzeros", "scales"))
    groups = part(folder, name, "g_idx") if f"{name}.g_idx" in folder.shard_of else None
    return made(name, size, lambda: from_gptq(qweight, qzeros, scales, groups, is_v2=is_v2))


def part(folder: Folder, name: str, kind: str) -> np.ndarray:
    """scales in float32, the others in int32."""
    whole = f"{name}.{kind}"
    if whole not in folder.shard_of:
        raise ModelError(f"{name} is quantised and lacks its {kind}")
    if kind == "scales":
        return folder.read(whole)
    found = folder.shard_of[whole].read(whole)
    if found.dtype != np.int32:
        raise ModelError(f"tensor {whole} is {found.dtype}, and quantised weights are int32")
    return found


def made(name: str, size: int, make: Callable[[], Int4]) -> Int4:
    try:
        matrix = make()
    except ValueError as error:
        raise ModelError(f"{name} does not fit together: {error}") from error
    inputs, groups = matrix.shape[1], len(matrix.scale)
    if groups * (inputs if size == -1 else size) != inputs:
        raise ModelError(f"{name} has {groups} groups for {inputs} inputs, and config.json says groups of {size}")
    return matrix
