"""Putting matrices into the formats of weights; `weights.py` says what the parts are."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as f

from octavo_kernels.int4 import Int4
from octavo_kernels.ops import BLOCK_BYTES, BLOCK_ELEMENTS, Blocks

Parts = dict[str, Tensor]
BITS = {"int4": 4, "int8_groups": 8}
"""Formats that share a scale in groups of inputs."""
SLICE = 32
"""Bytes of an output that lie together."""
GROUPS = (32, 64, 128)
"""Inputs that may share a scale."""
FP8_MOST = 448.0


@dataclass(frozen=True, slots=True)
class Grouped:
    """What a format with groups keeps: q * scale + other, or (q - other) * scale if other `is_zero`."""

    q: Tensor  # uint8 [outputs, inputs]
    scale: Tensor  # float16 [outputs, groups]
    other: Tensor  # likewise
    is_zero: bool
    order: Tensor | None = None  # int32 [inputs]: which input each column of q is for

    def parts(self, format: str) -> Parts:
        """Slices, and words for all that slices have room for."""
        groups, inputs = self.scale.shape[1], self.q.shape[1]
        missing = -(-padded(inputs, format) * groups // inputs) - groups
        words = f.pad(torch.stack((self.scale, self.other), -1), (0, 0, 0, missing)).transpose(0, 1).contiguous()
        parts = {"data": slices(self.q, BITS[format]), "scale_and_zero" if self.is_zero else "scale_and_low": words}
        return parts if self.order is None else parts | {"order": self.order}


def padded(inputs: int, format: str) -> int:
    """How many inputs whole slices hold."""
    size = SLICE * 8 // BITS[format]
    return -(-inputs // size) * size


def slices(q: Tensor, bits: int) -> Tensor:
    """uint8 [slices, outputs, 32]: with 4 bits the first 32 inputs of 64 in the low halves, the others in the high ones."""
    halves = 8 // bits
    outputs = len(q)
    q = f.pad(q, (0, -q.shape[1] % (SLICE * halves))).view(outputs, -1, halves, SLICE)
    data = q[:, :, 0] if halves == 1 else q[:, :, 0] | q[:, :, 1] << bits
    return data.transpose(0, 1).contiguous()


def per_output(matrix: Tensor, format: str) -> Parts:
    """int8 or fp8 with one scale an output: largest magnitude / 127, or / 448."""
    scale = matrix.abs().amax(1) / (127 if format == "int8" else FP8_MOST)
    even = matrix / torch.where(scale > 0, scale, 1)[:, None]
    data = even.round().to(torch.int8) if format == "int8" else even.to(torch.float8_e4m3fn).view(torch.uint8)
    return {"data": data, "scale": scale}


def grouped(matrix: Tensor, format: str) -> Grouped:
    """Groups of 32. int4: from the least to the largest of a group in 15 steps; int8_groups: symmetric, 0 at 128."""
    outputs, inputs = matrix.shape
    groups = f.pad(matrix[None], (0, -inputs % SLICE), mode="replicate")[0].view(outputs, -1, SLICE)
    is_int4 = format == "int4"
    least, most = groups.amin(-1), groups.amax(-1)
    scale = ((most - least) / 15 if is_int4 else groups.abs().amax(-1) / 127).half()
    other = least.half() if is_int4 else torch.full_like(scale, 128)
    step = scale.float()
    first = other.float() if is_int4 else -128 * step
    q = ((groups - first[..., None]) / torch.where(step > 0, step, 1)[..., None]).round()
    q = torch.where(step[..., None] > 0, q, 0 if is_int4 else 128).clamp(0, 15 if is_int4 else 255)
    return Grouped(q.to(torch.uint8).view(outputs, -1), scale, other, not is_int4)


def of_blocks(blocks: Blocks) -> Grouped:
    """A GGUF block: a float16 step, for Q4_1 a float16 least, then 32 values: 4 bits, 16 low ones first, or signed bytes."""
    outputs = len(blocks.data)
    data = np.ascontiguousarray(blocks.data).reshape(outputs, -1, BLOCK_BYTES[blocks.kind])
    halves = 2 if blocks.kind == "Q4_1" else 1
    head = torch.from_numpy(data[..., : 2 * halves].copy()).view(torch.float16)
    raw = torch.from_numpy(data[..., 2 * halves :].copy())
    q = raw ^ 128 if blocks.kind == "Q8_0" else torch.cat((raw & 15, raw >> 4), -1)
    zero = torch.full_like(head[..., 0], 128 if blocks.kind == "Q8_0" else 8)
    is_zero = blocks.kind != "Q4_1"
    return Grouped(q.view(outputs, -1), head[..., 0], zero if is_zero else head[..., 1], is_zero)


def of_int4(matrix: Int4) -> Grouped:
    """Inputs in the order of their groups. Groups of other sizes become several of one of ours. ValueError."""
    size = matrix.shape[1] // len(matrix.scale)
    ours = next((group for group in reversed(GROUPS) if size % group == 0), None)
    if ours is None:
        raise ValueError(f"groups of {size} inputs cannot be kept; of multiples of {GROUPS[0]} they can")
    repeat = size // ours
    order = np.argsort(matrix.group_of, kind="stable").astype(np.int32)
    is_sorted = bool((np.diff(matrix.group_of) >= 0).all())
    q = torch.from_numpy(matrix.q if is_sorted else matrix.q[:, order])
    scale, zero = (torch.from_numpy(np.repeat(each.T, repeat, 1)).half() for each in (matrix.scale, matrix.zero))
    return Grouped(q, scale, zero, True, None if is_sorted else torch.from_numpy(order))


def group_of_words(words: int, inputs: int) -> int | None:
    """How many of so many inputs, slices being whole, share a word; None if they are as many as no size of group makes."""
    return next((group for group in GROUPS if -(-inputs // group) == words), None)


assert BLOCK_ELEMENTS == SLICE == GROUPS[0]
