"""Operations on rows of activations."""

import triton
from torch import Tensor

from octavo_kernels.ops import Array, Sampling, Step
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.source.dense import (
    rms_norm_kernel,
    silu_mul_kernel,
    take_rows_kernel,
    take_tokens_kernel,
)

BLOCK = 1024


class Dense:
    """The functions of the door over these kernels."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher

    def take_tokens(self, sampling: Sampling, step: Step) -> None:
        self.launcher(
            take_tokens_kernel,
            (self.launcher.most(step.rows, len(step.row_slot)),),
            self.launcher.count(step.rows),
            step.row_slot,
            step.row_start,
            step.position,
            sampling.history,
            step.token,
            sampling.history.stride(0),
            BLOCK=BLOCK,
        )

    def take_rows(self, rows: Array, source: Tensor, index: Tensor, out: Tensor) -> None:
        width = out.shape[1]
        self.launcher(
            take_rows_kernel,
            (self.launcher.most(rows, out.shape[0]), triton.cdiv(width, BLOCK)),
            self.launcher.count(rows),
            source,
            index,
            out,
            source.stride(0),
            out.stride(0),
            width,
            BLOCK=BLOCK,
        )

    def rms_norm(
        self, rows: Array, x: Tensor | None, residual: Tensor, weight: Tensor, eps: float, out: Tensor
    ) -> None:
        width = out.shape[1]
        self.launcher(
            rms_norm_kernel,
            (self.launcher.most(rows, out.shape[0]),),
            self.launcher.count(rows),
            residual if x is None else x,
            residual,
            weight,
            out,
            0 if x is None else x.stride(0),
            residual.stride(0),
            out.stride(0),
            eps,
            width,
            HAS_X=x is not None,
            BLOCK=triton.next_power_of_2(width),
            num_warps=warps_of_row(width),
        )

    def silu_mul(self, rows: Array, gate_up: Tensor, out: Tensor) -> None:
        width = out.shape[1]
        self.launcher(
            silu_mul_kernel,
            (self.launcher.most(rows, out.shape[0]), triton.cdiv(width, BLOCK)),
            self.launcher.count(rows),
            gate_up,
            out,
            gate_up.stride(0),
            out.stride(0),
            width,
            BLOCK=BLOCK,
        )


def warps_of_row(width: int) -> int:
    """So many that each thread holds about eight elements."""
    return min(max(int(triton.next_power_of_2(width)) // 256, 1), 16)
