"""Operations on rows of activations. Formulas are in `octavo_kernels.ops`."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as f

from octavo_kernels.ops import GatedLinear, Linear, RmsNorm, Sampling, SiluMul, Step, Weight
from octavo_kernels.reference.memory import Matrix


def take_tokens(sampling: Sampling, step: Step) -> None:
    start, slot = step.row_start[: step.num_rows + 1], step.row_slot[: step.num_rows]
    owner = torch.repeat_interleave(slot, start.diff())
    n = owner.numel()
    token = sampling.history[owner.clamp(min=0), step.position[:n]]
    step.token[:n] = torch.where(owner >= 0, token, step.token[:n])


def take_rows(rows: np.ndarray, source: Tensor, index: Tensor, out: Tensor) -> None:
    n = int(rows[0])
    out[:n] = torch.index_select(source, 0, index[:n])


def embed(rows: np.ndarray, source: Weight, index: Tensor, out: Tensor) -> None:
    take_rows(rows, matrix_of(source).data, index, out)


def linear(rows: np.ndarray, x: Tensor, weight: Weight, out: Tensor) -> None:
    n = int(rows[0])
    out[:n] = multiplied(x[:n], weight)


def multiplied(x: Tensor, weight: Weight) -> Tensor:
    """In the dtype of x, whatever that of the weight is."""
    matrix = matrix_of(weight)
    return f.linear(x, matrix.data.to(x.dtype), None if matrix.bias is None else matrix.bias.to(x.dtype))


def matrix_of(weight: Weight) -> Matrix:
    assert isinstance(weight.handle, Matrix), "a weight of other kernels"
    return weight.handle


def gated_linear(rows: np.ndarray, x: Tensor, gate: Weight, up: Weight, out: Tensor) -> None:
    n = int(rows[0])
    out[:n] = f.silu(multiplied(x[:n], gate)) * multiplied(x[:n], up)


def rms_norm(rows: np.ndarray, x: Tensor | None, residual: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    n = int(rows[0])
    out[:n] = normed(added(x, residual, n), weight, eps)


def added(x: Tensor | None, residual: Tensor, n: int) -> Tensor:
    """The first n rows of residual, once x is added to them."""
    return residual[:n] if x is None else residual[:n].add_(x[:n])


def normed(residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = residual.float()
    return wide * wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_() * weight


def silu_mul(rows: np.ndarray, gate_up: Tensor, out: Tensor) -> None:
    n = int(rows[0])
    out[:n] = gated(gate_up[:n])


def gated(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return f.silu(gate) * up


def tiles(x: Tensor, tile: int) -> Iterator[tuple[int, int, Tensor]]:
    """(first row, rows, tile) with each tile a fresh [tile, width], padded with zeros."""
    for start in range(0, x.shape[0], tile):
        part = x[start : start + tile]
        yield start, part.shape[0], f.pad(part, (0, 0, 0, tile - part.shape[0]))


def tiled_linear(tile: int) -> Linear:
    def linear_by_tile(rows: np.ndarray, x: Tensor, weight: Weight, out: Tensor) -> None:
        for start, n, part in tiles(x[: int(rows[0])], tile):
            out[start : start + n] = multiplied(part, weight)[:n]

    return linear_by_tile


def tiled_gated_linear(tile: int) -> GatedLinear:
    def gated_linear_by_tile(rows: np.ndarray, x: Tensor, gate: Weight, up: Weight, out: Tensor) -> None:
        for start, n, part in tiles(x[: int(rows[0])], tile):
            out[start : start + n] = (f.silu(multiplied(part, gate)) * multiplied(part, up))[:n]

    return gated_linear_by_tile


def tiled_rms_norm(tile: int) -> RmsNorm:
    def rms_norm_by_tile(
        rows: np.ndarray, x: Tensor | None, residual: Tensor, weight: Tensor, eps: float, out: Tensor
    ) -> None:
        for start, n, part in tiles(added(x, residual, int(rows[0])), tile):
            out[start : start + n] = normed(part, weight, eps)[:n]

    return rms_norm_by_tile


def tiled_silu_mul(tile: int) -> SiluMul:
    def silu_mul_by_tile(rows: np.ndarray, gate_up: Tensor, out: Tensor) -> None:
        for start, n, part in tiles(gate_up[: int(rows[0])], tile):
            out[start : start + n] = gated(part)[:n]

    return silu_mul_by_tile
