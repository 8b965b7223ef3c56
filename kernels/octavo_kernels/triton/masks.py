"""Constrained answers."""

import triton
from torch import Tensor

from octavo_kernels.ops import Masks as Given
from octavo_kernels.ops import Step
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.source.masks import mask_logits_kernel

BLOCK = 4096


class Masks:
    """The function of the door over its kernel."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher

    def mask_logits(self, logits: Tensor, masks: Given, step: Step) -> None:
        """See ops.MaskLogits. Launched for all samples of the step's room: how many have a mask is read on the device."""
        most = self.launcher.most(step.samples, len(masks.row))
        self.launcher(
            mask_logits_kernel,
            (most, triton.cdiv(logits.shape[1], BLOCK)),
            self.launcher.count(masks.rows),
            masks.row,
            masks.bits,
            logits,
            logits.stride(0),
            masks.bits.stride(0),
            logits.shape[1],
            BLOCK=BLOCK,
            num_warps=8,
        )
