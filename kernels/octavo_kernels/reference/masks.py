"""Constrained answers: which logits count."""

import torch
from torch import Tensor

from octavo_kernels.ops import Masks, Step


def mask_logits(logits: Tensor, masks: Masks, step: Step) -> None:
    """See ops.MaskLogits."""
    count = int(masks.rows[0])
    if not count:
        return
    row, token = masks.row[:count].long(), torch.arange(logits.shape[1])
    is_allowed = (masks.bits[:count, token // 32] >> (token % 32)) & 1
    logits[row] = torch.where(is_allowed > 0, logits[row], logits[row] - torch.inf)
