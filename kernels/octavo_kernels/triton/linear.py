"""Multiplying by weights, in any of their formats.

Weights in bytes and bits are brought to the dtype of x in registers, but for int8, whose x is rounded to int8 as well, a
row with one scale. Where x and a weight in floats differ, both become what holds either.

A row has the same bits in any launch, if the kernels are `invariant`. If they need not be, a GPU's own library multiplies by
weights in floats; it computes all rows that a launch holds, also those past the count.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from octavo_kernels.ops import Array, Weight
from octavo_kernels.triton.dense import BLOCK, Dense
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.quantise import BITS
from octavo_kernels.triton.source.groups import embed_groups_kernel, linear_groups_kernel, take_columns_kernel
from octavo_kernels.triton.source.linear import embed_kernel, linear_kernel, quantise_rows_kernel
from octavo_kernels.triton.tuning import tile_for
from octavo_kernels.triton.weights import FLOATS, Matrix, matrix_of

LANGUAGE = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.int8: tl.int8,
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of activations as a product takes them."""

    x: Tensor
    scale: Tensor | None
    compute: torch.dtype  # of both operands


class Linear:
    """The functions of the door that multiply."""

    def __init__(self, launcher: Launcher, *, invariant: bool = False) -> None:
        self.launcher, self.invariant = launcher, invariant
        self.dense = Dense(launcher)
        self.has_library = launcher.device.place.type == "cuda" and not invariant
        self.rooms: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}

    def linear(self, rows: Array, x: Tensor, weight: Weight, out: Tensor) -> None:
        matrix = matrix_of(weight)
        if self.is_for_library(x, matrix, out):
            self.by_library(rows, x, matrix, out)
        else:
            self.multiply(rows, x, matrix, None, out)

    def gated_linear(self, rows: Array, x: Tensor, gate: Weight, up: Weight, out: Tensor) -> None:
        first, second = matrix_of(gate), matrix_of(up)
        if first.is_like(second) and not self.is_for_library(x, first, out):
            self.multiply(rows, x, second, first, out)
            return
        both = self.room((x.shape[0], 2 * up.outputs), out.dtype)
        self.linear(rows, x, gate, both[:, : up.outputs])
        self.linear(rows, x, up, both[:, up.outputs :])
        self.dense.silu_mul(rows, both, out)

    def embed(self, rows: Array, source: Weight, index: Tensor, out: Tensor) -> None:
        matrix = matrix_of(source)
        if source.format in FLOATS:
            self.dense.take_rows(rows, matrix.data, index, out)
            return
        is_grouped = source.format in BITS
        options = groups_of(matrix) if is_grouped else {"IS_FP8": source.format == "fp8"}
        self.launcher(
            embed_groups_kernel if is_grouped else embed_kernel,
            (self.launcher.most(rows, out.shape[0]), triton.cdiv(source.inputs, BLOCK)),
            *(self.launcher.count(rows), matrix.data, matrix.scale, matrix.order, index, out, out.stride(0)),
            *(source.outputs, source.inputs),
            BLOCK=BLOCK,
            **options,
        )

    def is_for_library(self, x: Tensor, matrix: Matrix, out: Tensor) -> bool:
        return self.has_library and x.dtype == matrix.data.dtype == out.dtype

    def by_library(self, rows: Array, x: Tensor, matrix: Matrix, out: Tensor) -> None:
        most = self.launcher.most(rows, out.shape[0])
        x, out, weight = x[:most], out[:most], matrix.data.t()

        def multiply() -> None:
            if matrix.bias is None:
                torch.mm(x, weight, out=out)
            else:
                torch.addmm(matrix.bias.to(x.dtype), x, weight, out=out)

        self.launcher.do(multiply)

    def multiply(self, rows: Array, x: Tensor, weight: Matrix, gate: Matrix | None, out: Tensor) -> None:
        """out = x @ weight transposed (+ bias), times silu(x @ gate transposed) if there is a gate."""
        staged, most = self.staged(rows, x, weight), self.launcher.most(rows, out.shape[0])
        tile = tile_for(kind_of(weight.format, staged.compute), most, invariant=self.invariant)
        is_grouped = weight.format in BITS
        outputs = weight.data.shape[1 if is_grouped else 0]
        inputs = x.shape[1]
        options = (
            {"SLICES": tile.inputs} | groups_of(weight)
            if is_grouped
            else {"INPUTS": tile.inputs, "IS_EVEN": inputs % tile.inputs == 0, "IS_FP8": weight.format == "fp8"}
        )
        self.launcher(
            linear_groups_kernel if is_grouped else linear_kernel,
            (triton.cdiv(most, tile.rows), triton.cdiv(outputs, tile.outputs)),
            *(self.launcher.count(rows), staged.x, staged.scale, weight.data, weight.scale, weight.bias),
            *((None, None) if gate is None else (gate.data, gate.scale)),
            *(out, staged.x.stride(0), out.stride(0), outputs, inputs),
            COMPUTE=LANGUAGE[staged.compute],
            OUTPUTS=tile.outputs,
            ROWS=tile.rows,
            num_warps=tile.warps,
            num_stages=tile.stages,
            **options,
        )

    def staged(self, rows: Array, x: Tensor, weight: Matrix) -> Rows:
        """Rows rounded to int8, or in the order of the weight's inputs, or as they are."""
        if weight.format == "int8":
            return self.quantised(rows, x)
        compute = torch.promote_types(x.dtype, weight.data.dtype) if weight.format in FLOATS else x.dtype
        return Rows(x if weight.order is None else self.ordered(rows, x, weight.order), None, compute)

    def quantised(self, rows: Array, x: Tensor) -> Rows:
        """In int8, with a scale a row."""
        made, scale = self.room(tuple(x.shape), torch.int8), self.room((x.shape[0],), torch.float32)
        self.launcher(
            quantise_rows_kernel,
            (self.launcher.most(rows, x.shape[0]),),
            *(self.launcher.count(rows), x, made, scale, x.stride(0), made.stride(0), x.shape[1]),
            BLOCK=BLOCK,
        )
        return Rows(made, scale, torch.int8)

    def ordered(self, rows: Array, x: Tensor, order: Tensor) -> Tensor:
        """Columns of x in another order."""
        made = self.room(tuple(x.shape), x.dtype)
        self.launcher(
            take_columns_kernel,
            (self.launcher.most(rows, x.shape[0]), triton.cdiv(x.shape[1], BLOCK)),
            *(self.launcher.count(rows), x, order, made, x.stride(0), made.stride(0), x.shape[1]),
            BLOCK=BLOCK,
        )
        return made

    def room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory between two launches. It is the same for all who ask for as much: they come one after the other."""
        if (shape, dtype) not in self.rooms:
            self.rooms[shape, dtype] = torch.empty(shape, dtype=dtype, device=self.launcher.device.place)
        return self.rooms[shape, dtype]


def kind_of(format: str, compute: torch.dtype) -> str:
    """The key of the tiles of a product."""
    if compute == torch.float32:
        return "float32_groups" if format in BITS else "float32"
    return "half" if format in FLOATS else format


def groups_of(matrix: Matrix) -> dict[str, int | bool]:
    """Constants of kernels for weights with groups."""
    return {"GROUP": matrix.group, "BITS": BITS[matrix.format], "IS_ZERO": matrix.is_zero}
