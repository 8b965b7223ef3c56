"""Linear layers, every kind of weight by every shape, against float64.

The error of an element is relative to the sum of the magnitudes that are added in it, so that a bound holds for any inputs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from octavo_kernels.int4 import Int4
from octavo_kernels.ops import Blocks, Ops, Weight
from torch import Tensor

from tests.kernels.implementations import build
from tests.kernels.steps import count

ROWS = (1, 2, 15, 16, 17, 33, 140)
SHAPES = ((41, 123), (64, 64), (130, 96), (33, 36))
"""Outputs and inputs."""
DTYPES = ("float32", "bfloat16", "float16")
FORMATS = (*DTYPES, "fp8", "int8", "int8_groups", "int4")
BLOCKS = {"Q4_0": "int4", "Q4_1": "int4", "Q8_0": "int8_groups"}
GROUPS = {"groups of 32": 32, "groups of 64": 64, "groups of 128": 128, "groups in disorder": 32}
HALF = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Half of the distance of neighbours, relative to a number."""
SUMS = 2e-6
"""What additions in float32 cost."""
PAST = -7.0
"""In all rows that do not count."""


@dataclass(frozen=True)
class Case:
    """`source`: floats, a kind of GGUF blocks, or a key of GROUPS. `dtype` is that of x; results are float32."""

    format: str
    source: str
    dtype: str
    rows: int
    outputs: int
    inputs: int
    is_gated: bool

    @property
    def bound(self) -> float:
        """Of the relative error: additions, and weights with groups are rounded to the dtype of x."""
        return SUMS + (HALF[self.dtype] if self.format in ("int4", "int8_groups") else 0)


def all_cases() -> Iterator[Case]:
    """Every one."""
    sources = {format: ["floats"] for format in FORMATS}
    for kind, format in BLOCKS.items():
        sources[format].append(kind)
    sources["int4"] += GROUPS
    for format, dtype, rows, shape, is_gated in product(FORMATS, DTYPES, ROWS, SHAPES, (False, True)):
        for source in sources[format]:
            if shape[1] % needed(source) == 0:
                yield Case(format, source, dtype, rows, *shape, is_gated)
    for source, size in GROUPS.items():
        for dtype, rows in product(DTYPES, ROWS):
            yield Case("int4", source, dtype, rows, 40, 3 * size, False)


def needed(source: str) -> int:
    """A divisor of the inputs."""
    return 32 if source in BLOCKS else GROUPS.get(source, 1)


def matrix_of(case: Case, rng: np.random.Generator) -> np.ndarray | Blocks | Int4:
    """As it comes from a file."""
    if case.source in GROUPS:
        return random_int4(rng, case.outputs, case.inputs, GROUPS[case.source], in_order="disorder" not in case.source)
    matrix = np.asarray(rng.standard_normal((case.outputs, case.inputs)) / np.sqrt(case.inputs), np.float32)
    if case.source in BLOCKS:
        return Blocks(case.source, quantize(matrix, GGMLQuantizationType[case.source]))
    return matrix


def random_int4(rng: np.random.Generator, outputs: int, inputs: int, size: int, *, in_order: bool = True) -> Int4:
    group_of = np.repeat(np.arange(inputs // size, dtype=np.int32), size)
    shape = (inputs // size, outputs)
    return Int4(
        rng.integers(0, 16, (outputs, inputs), np.uint8),
        (rng.random(shape) * 0.02 + 0.001).astype(np.float16),
        rng.integers(0, 16, shape, np.uint8),
        group_of if in_order else rng.permutation(group_of),
    )


def check(case: Case, ops: Ops | None = None) -> float:
    """The largest relative error. Asserts that rows past the count are left alone and that NaN in them does no harm.

    On a GPU `ops` have to be invariant ones: its own library would write into those rows.
    """
    ops = ops or build("triton")
    place = ops.new_buffer((1,), "float32").device
    rng = np.random.default_rng(case.rows * 1000 + case.outputs)
    weights = [packed(ops, case, rng) for _ in range(2 if case.is_gated else 1)]
    x = torch.from_numpy(rng.standard_normal((case.rows + 3, case.inputs), np.float32)).to(getattr(torch, case.dtype))
    x[case.rows :] = torch.nan
    out = torch.full((case.rows + 3, case.outputs), PAST, device=place)
    given = x.to(place)
    settle(place)
    if case.is_gated:
        ops.gated_linear(count(case.rows), given, weights[0], weights[1], out)
    else:
        ops.linear(count(case.rows), given, weights[0], out)
    settle(place)
    out = out.cpu()
    assert (out[case.rows :] == PAST).all(), "rows past the count were written"
    truth, size = expected(case, x[: case.rows], weights)
    return float(((out[: case.rows].double() - truth).abs() / size).max())


def settle(place: torch.device) -> None:
    """Until a GPU has done what it was given on any stream."""
    if place.type == "cuda":
        torch.cuda.synchronize(place)


def packed(ops: Ops, case: Case, rng: np.random.Generator) -> Weight:
    bias = None if case.is_gated else rng.standard_normal(case.outputs, np.float32)
    return ops.pack(matrix_of(case, rng), bias, case.format)


def expected(case: Case, x: Tensor, weights: list[Weight]) -> tuple[Tensor, Tensor]:
    """In float64: the layer's result, and the magnitudes that its elements are sums of."""
    wide = rounded(x) if case.format == "int8" else x.double()
    products, sizes = [], []
    for weight in weights:
        matrix = unpacked(weight)
        bias = torch.from_numpy(weight.parts["bias"]).double() if "bias" in weight.parts else torch.zeros(1)
        products.append(wide @ matrix.t() + bias)
        sizes.append(wide.abs() @ matrix.abs().t() + bias.abs())
    if not case.is_gated:
        return products[0], sizes[0]
    (a, b), (size_a, size_b) = products, sizes
    opened = a * a.sigmoid()
    return opened * b, 1.1 * size_a * b.abs() + (opened.abs() + 1e-3) * size_b


def rounded(x: Tensor) -> Tensor:
    """What is left of rows that share a scale in int8."""
    scale = x.float().abs().amax(1, keepdim=True) / 127
    whole = (x.float() / scale).round()
    return torch.mul(whole.double(), scale.double())


def unpacked(weight: Weight) -> Tensor:
    """The matrix that a weight's parts stand for, float64 [outputs, inputs], as the kernels' documentation has it."""
    parts = {name: torch.from_numpy(np.array(part)) for name, part in weight.parts.items()}
    data = parts["data"]
    if weight.format in DTYPES:
        floats: Tensor = data.view(getattr(torch, weight.format))
        return floats.double()
    if "scale" in parts:
        values = data.view(torch.float8_e4m3fn) if weight.format == "fp8" else data
        return torch.mul(values.double(), parts["scale"].double()[:, None])
    halves = (data & 15, data >> 4) if weight.format == "int4" else (data,)
    q = torch.stack(halves, 2).permute(1, 0, 2, 3).reshape(weight.outputs, -1).double()
    words = parts["scale_and_zero" if "scale_and_zero" in parts else "scale_and_low"].double()
    size = next(size for size in (32, 64, 128) if -(-q.shape[1] // size) == len(words))
    scale, other = words.repeat_interleave(size, 0)[: q.shape[1]].permute(2, 1, 0)
    values = (q - other) * scale if "scale_and_zero" in parts else q * scale + other
    values = values[:, : weight.inputs]
    return torch.index_select(values, 1, parts["order"].argsort()) if "order" in parts else values
