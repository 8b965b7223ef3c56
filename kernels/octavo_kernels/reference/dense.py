"""Operations on rows of activations. Formulas are in `octavo_kernels.ops`."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad, silu

from octavo_kernels.ops import Linear, RmsNorm, SiluMul


def take_rows(source: Tensor, index: Tensor, out: Tensor) -> None:
    torch.index_select(source, 0, index, out=out)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    if bias is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(bias, x, weight.t(), out=out)


def rms_norm(x: Tensor | None, residual: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    if x is not None:
        residual.add_(x)
    wide = residual.float()
    scale = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
    out.copy_(wide * scale).mul_(weight)


def silu_mul(gate_up: Tensor, out: Tensor) -> None:
    width = out.shape[-1]
    torch.mul(silu(gate_up[:, :width]), gate_up[:, width:], out=out)


def tiles(x: Tensor, tile: int) -> Iterator[tuple[int, int, Tensor]]:
    """(first row, rows, tile) with each tile a fresh [tile, width], padded with zeros."""
    for start in range(0, x.shape[0], tile):
        part = x[start : start + tile]
        yield start, part.shape[0], pad(part, (0, 0, 0, tile - part.shape[0]))


def tiled_linear(tile: int) -> Linear:
    def linear_by_tile(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        result = out.new_empty(tile, out.shape[1])
        for start, rows, part in tiles(x, tile):
            linear(part, weight, bias, result)
            out[start : start + rows] = result[:rows]

    return linear_by_tile


def tiled_rms_norm(tile: int) -> RmsNorm:
    def rms_norm_by_tile(x: Tensor | None, residual: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
        if x is not None:
            residual.add_(x)
        for start, rows, part in tiles(residual, tile):
            rms_norm(None, part, weight, eps, part)
            out[start : start + rows] = part[:rows]

    return rms_norm_by_tile


def tiled_silu_mul(tile: int) -> SiluMul:
    def silu_mul_by_tile(gate_up: Tensor, out: Tensor) -> None:
        result = out.new_empty(tile, out.shape[1])
        for start, rows, part in tiles(gate_up, tile):
            silu_mul(part, result)
            out[start : start + rows] = result[:rows]

    return silu_mul_by_tile
