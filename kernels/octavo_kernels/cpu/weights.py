"""Weights in the order that the C kernels read them; the layout is described in source/octavo.h."""

from collections.abc import Mapping
from ctypes import pointer
from typing import TypeAlias

import numpy as np

from octavo_kernels.cpu import library as c
from octavo_kernels.cpu.memory import NUMPY, address, new_buffer
from octavo_kernels.cpu.tape import Team
from octavo_kernels.int4 import Int4
from octavo_kernels.ops import Array, Blocks, Values, Weight

PANEL = 32
"""Outputs of a panel."""
GROUP = 32
"""Inputs that share a scale in int4."""


Parts: TypeAlias = dict[str, tuple[tuple[int, ...], str]]


def parts_of(format: str, outputs: int, inputs: int) -> Parts:
    """Shape and dtype of each part but the bias."""
    panels = -(-outputs // PANEL)
    if format in ("int4", "int8_groups"):
        groups = -(-inputs // GROUP)
        parts: Parts = {
            "data": ((panels, groups, PANEL * GROUP // (2 if format == "int4" else 1)), "int8"),
            "scale": ((panels, groups, PANEL), "float16"),
        }
        return parts | ({"low": ((panels, groups, PANEL), "float16")} if format == "int4" else {})
    size = {"float32": 4, "bfloat16": 2, "int8": 1}[format]
    padded = -(-inputs * size // 64) * 64 // size
    parts = {"data": ((panels, padded * size // 4, PANEL, 4 // size), format)}
    if format == "int8":
        parts |= {"scale": ((panels * PANEL,), "float32"), "sum": ((panels * PANEL,), "int32")}
    return parts


def pack_weight(team: Team, matrix: Values, bias: np.ndarray | None, format: str) -> Weight:
    """Put a matrix into panels, quantising it if the format asks for that. Blocks keep their values in their own format."""
    if isinstance(matrix, Int4) or (isinstance(matrix, Blocks) and matrix.format != format):
        matrix = matrix.floats()
    data = np.ascontiguousarray(matrix.data if isinstance(matrix, Blocks) else matrix)
    outputs, inputs = matrix.shape
    parts: dict[str, np.ndarray] = {
        name: new_buffer(shape, dtype) for name, (shape, dtype) in parts_of(format, outputs, inputs).items()
    }
    if bias is not None:
        parts["bias"] = np.ascontiguousarray(bias, np.float32)
    weight = Weight(format, outputs, inputs, parts)
    kept = packed(weight)
    source = c.SOURCES[matrix.kind if isinstance(matrix, Blocks) else "float32"]
    team.do("pack", c.Pack(address(data), pointer(kept), source))
    return weight


def unpack(format: str, outputs: int, inputs: int, parts: Mapping[str, Array]) -> Weight:
    """A weight from parts that `pack_weight` made once. Raises ValueError if they do not fit its shape."""
    expected = parts_of(format, outputs, inputs)
    if "bias" in parts:
        expected["bias"] = ((outputs,), "float32")
    for name, (shape, dtype) in expected.items():
        if name not in parts or parts[name].shape != shape or parts[name].dtype != NUMPY[dtype]:
            raise ValueError(f"part {name} of a {format} weight [{outputs}, {inputs}] is not {dtype} {list(shape)}")
    return Weight(format, outputs, inputs, parts)


def packed(weight: Weight) -> c.PackedWeight:
    """For C. The weight must outlive it."""
    where = {name: address(part) for name, part in weight.parts.items()}
    pointers = (where.get(name) for name in ("data", "scale", "low", "sum", "bias"))
    return c.PackedWeight(*pointers, weight.outputs, weight.inputs, c.TYPES[weight.format])
