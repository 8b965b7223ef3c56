"""Weights in the memory of a device, and the parts that they are kept as:

float32, bfloat16, float16  data [outputs, inputs]
int8                        data int8 likewise, scale float32 [outputs]
fp8                         data uint8 likewise, bits of e4m3, scale float32 [outputs]
int4, int8_groups           data uint8 [slices, outputs, 32], scale_and_low or scale_and_zero float16 [groups, outputs, 2],
                            order int32 [inputs] if inputs are sorted by their groups; see source/groups.py
Any may have bias float32 [outputs].
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

from octavo_kernels.ops import Blocks, Values, Weight
from octavo_kernels.triton.device import Device
from octavo_kernels.triton.quantise import (
    BITS,
    SLICE,
    Parts,
    group_of_words,
    grouped,
    of_blocks,
    of_int4,
    padded,
    per_output,
)
from octavo_kernels.triton.tensors import DTYPES

WEIGHT_LAYOUT = "triton.rows.slices32"
FLOATS = ("bfloat16", "float16", "float32")
FORMATS = (*FLOATS, "fp8", "int8", "int8_groups", "int4")
NUMPY = {"bfloat16": np.uint16, "float16": np.float16, "float32": np.float32, "int8": np.int8, "fp8": np.uint8}


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight on the device, as its format says."""

    format: str
    data: Tensor
    bias: Tensor | None = None
    scale: Tensor | None = None  # float32 [outputs], or both numbers of a group in int32 [groups, outputs]
    group: int = 0  # inputs
    is_zero: bool = False  # the second number of a group is a zero point
    order: Tensor | None = None
    order_digest: bytes = b""

    def is_like(self, other: "Matrix") -> bool:
        """Whether one launch can multiply by both."""
        mine, others = ((m.format, m.data.shape, m.group, m.is_zero, m.order_digest) for m in (self, other))
        return mine == others


@dataclass(frozen=True, slots=True, eq=False)
class OnDevice(Mapping[str, np.ndarray]):
    """Parts that are brought to main memory when they are asked for."""

    tensors: Parts

    def __getitem__(self, name: str) -> np.ndarray:
        tensor = self.tensors[name].cpu()
        return np.asarray(tensor.view(torch.uint16 if tensor.dtype == torch.bfloat16 else tensor.dtype).numpy())

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def pack(device: Device, matrix: Values, bias: np.ndarray | None, format: str) -> Weight:
    """A matrix [outputs, inputs], and a bias [outputs]. What is quantised already keeps its values in its own format."""
    outputs, inputs = matrix.shape
    made = parts_of(device, matrix, format)
    if bias is not None:
        made["bias"] = torch.tensor(bias, dtype=torch.float32)
    return on_device(device, format, outputs, inputs, made)


def parts_of(device: Device, matrix: Values, format: str) -> Parts:
    """Quantised on the device, where there is most room and speed."""
    if not isinstance(matrix, np.ndarray):
        if matrix.format == format:
            return (of_blocks(matrix) if isinstance(matrix, Blocks) else of_int4(matrix)).parts(format)
        matrix = matrix.floats()
    floats = torch.tensor(matrix, dtype=torch.float32, device=device.place)
    if format in FLOATS:
        return {"data": floats.to(DTYPES[format])}
    return grouped(floats, format).parts(format) if format in BITS else per_output(floats, format)


def unpack(device: Device, format: str, outputs: int, inputs: int, parts: Mapping[str, np.ndarray]) -> Weight:
    """Raises ValueError if the parts do not fit the shape."""
    for name, (shape, dtype) in expected_parts(format, outputs, inputs, parts).items():
        if name not in parts or parts[name].shape != shape or parts[name].dtype != dtype:
            raise ValueError(f"part {name} of a {format} weight [{outputs}, {inputs}] is not {dtype} {list(shape)}")
    made = {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in parts.items()}
    if format == "bfloat16":
        made["data"] = made["data"].view(torch.bfloat16)
    return on_device(device, format, outputs, inputs, made)


def expected_parts(
    format: str, outputs: int, inputs: int, parts: Mapping[str, np.ndarray]
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of each, those that need not be there only if they are."""
    expected: dict[str, tuple[tuple[int, ...], type]] = {}
    if format in BITS:
        name = "scale_and_zero" if "scale_and_zero" in parts else "scale_and_low"
        whole = padded(inputs, format)
        groups = len(parts[name]) if name in parts else 0
        expected["data"] = ((whole * BITS[format] // (8 * SLICE), outputs, SLICE), np.uint8)
        expected[name] = ((groups if group_of_words(groups, whole) else whole // SLICE, outputs, 2), np.float16)
    else:
        expected["data"] = ((outputs, inputs), NUMPY[format])
        if format not in FLOATS:
            expected["scale"] = ((outputs,), np.float32)
    for name, size, dtype in (("bias", outputs, np.float32), ("order", inputs, np.int32)):
        if name in parts:
            expected[name] = ((size,), dtype)
    return {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in expected.items()}


def on_device(device: Device, format: str, outputs: int, inputs: int, parts: Parts) -> Weight:
    """A weight of parts that fit."""
    there = {name: part.to(device.place) for name, part in parts.items()}
    bias, order = there.get("bias"), there.get("order")
    if format in BITS:
        is_zero = "scale_and_zero" in there
        words = there["scale_and_zero" if is_zero else "scale_and_low"]
        group = group_of_words(len(words), padded(inputs, format)) or SLICE
        digest = b"" if order is None else sha256(order.cpu().numpy().tobytes()).digest()
        matrix = Matrix(format, there["data"], bias, words.view(torch.int32)[..., 0], group, is_zero, order, digest)
    else:
        matrix = Matrix(format, there["data"], bias, there.get("scale"))
    return Weight(format, outputs, inputs, OnDevice(there), matrix)


def matrix_of(weight: Weight) -> Matrix:
    """What these kernels made of a weight."""
    assert isinstance(weight.handle, Matrix), "a weight of other kernels"
    return weight.handle
