"""Weights in the memory of a device."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from octavo_kernels.ops import Blocks, Weight
from octavo_kernels.triton.device import Device
from octavo_kernels.triton.tensors import DTYPES

WEIGHT_LAYOUT = "triton.rows"
FORMATS = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight in floats."""

    data: Tensor  # [outputs, inputs]
    bias: Tensor | None  # float32 [outputs]


def pack(device: Device, matrix: np.ndarray | Blocks, bias: np.ndarray | None, format: str) -> Weight:
    """`data` [outputs, inputs] in the format, `bias` float32 [outputs]."""
    floats = matrix.floats() if isinstance(matrix, Blocks) else matrix
    data = torch.tensor(floats, dtype=DTYPES[format])
    parts = {"data": data.view(torch.uint16 if format == "bfloat16" else data.dtype).numpy()}
    if bias is not None:
        parts["bias"] = np.array(bias, np.float32)
    outputs, inputs = floats.shape
    return unpack(device, format, outputs, inputs, parts)


def unpack(device: Device, format: str, outputs: int, inputs: int, parts: Mapping[str, np.ndarray]) -> Weight:
    """Raises ValueError if the parts do not fit the shape."""
    kept = {"bfloat16": np.uint16, "float16": np.float16, "float32": np.float32}[format]
    for name, shape, dtype in (("data", (outputs, inputs), kept), ("bias", (outputs,), np.float32)):
        part = parts.get(name)
        if (part is None and name == "data") or (part is not None and (part.shape != shape or part.dtype != dtype)):
            raise ValueError(f"part {name} of a {format} weight [{outputs}, {inputs}] is missing or of another shape")
    on_device = {name: torch.from_numpy(np.ascontiguousarray(part)).to(device.place) for name, part in parts.items()}
    data = on_device["data"].view(DTYPES[format])
    return Weight(format, outputs, inputs, parts, Matrix(data, on_device.get("bias")))


def matrix_of(weight: Weight) -> Matrix:
    """Of a weight in floats."""
    assert isinstance(weight.handle, Matrix), "a weight of other kernels"
    return weight.handle
