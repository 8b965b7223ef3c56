"""Where arrays and weights lie: all of them are torch tensors in main memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from octavo_kernels.ops import Geometry, Replay, Step, Values, Weight

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int32": torch.int32,
    "int8": torch.int8,
}
NUMPY = {torch.bfloat16: torch.uint16}
"""What numpy knows instead."""
WEIGHT_LAYOUT = "ref.rows"
FORMATS = ("float32", "bfloat16", "float16")


def new_buffer(shape: tuple[int, ...], dtype: str) -> Tensor:
    """Zeros."""
    return torch.zeros(shape, dtype=DTYPES[dtype])


def new_pool(geometry: Geometry, num_pages: int) -> Tensor:
    """Main memory is taken page by page as tokens come. Raises MemoryError."""
    try:
        return torch.empty(num_pages + 1, geometry.page_bytes, dtype=torch.uint8)
    except RuntimeError as error:
        raise MemoryError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight in torch, over the memory of its parts."""

    data: Tensor  # [outputs, inputs]
    bias: Tensor | None  # float32 [outputs]


def pack(matrix: Values, bias: np.ndarray | None, format: str) -> Weight:
    """`data` [outputs, inputs] in the format, `bias` float32 [outputs]."""
    floats = matrix if isinstance(matrix, np.ndarray) else matrix.floats()
    data = torch.tensor(floats, dtype=DTYPES[format])
    parts = {"data": data.view(NUMPY.get(data.dtype, data.dtype)).numpy()}
    if bias is not None:
        parts["bias"] = np.array(bias, np.float32)
    outputs, inputs = floats.shape
    return unpack(format, outputs, inputs, parts)


def unpack(format: str, outputs: int, inputs: int, parts: Mapping[str, np.ndarray]) -> Weight:
    """Raises ValueError if the parts do not fit the shape."""
    shapes = {"data": (outputs, inputs), "bias": (outputs,)}
    dtypes = {"data": DTYPES[format], "bias": torch.float32}
    tensors = {name: torch.from_numpy(part) for name, part in parts.items()}
    for name, tensor in tensors.items():
        if shapes.get(name) != tensor.shape or tensor.dtype != NUMPY.get(dtypes[name], dtypes[name]):
            raise ValueError(f"part {name} of a {format} weight [{outputs}, {inputs}] is {list(tensor.shape)}")
    if "data" not in tensors:
        raise ValueError(f"a {format} weight [{outputs}, {inputs}] has no data")
    return Weight(format, outputs, inputs, parts, Matrix(tensors["data"].view(DTYPES[format]), tensors.get("bias")))


def capture(step: Step, body: Callable[[], None]) -> Replay:
    """Plain torch: the body itself, each time."""
    return torch.inference_mode()(body)
