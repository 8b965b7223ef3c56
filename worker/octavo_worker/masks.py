"""The masks of samples of constrained rows, in persistent arrays, filled from a plan's rows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from octavo_kernels.ops import Masks, Step

from octavo_worker.batch import Rows
from octavo_worker.slots import Array, Slots

TOKENS_PER_WORD = 32


def new_masks(rows: int, vocabulary: int) -> Masks:
    """Room for a mask of each sample, in numpy."""
    return Masks(row=np.zeros(rows, np.int32), bits=np.zeros((rows, -(-vocabulary // TOKENS_PER_WORD)), np.int32))


def shared(masks: Masks, share: Callable[[Array], Any]) -> Masks:
    """The same for kernels, which `share` the arrays."""
    return replace(masks, row=share(masks.row), bits=share(masks.bits), rows=share(masks.rows))


def fill(masks: Masks, rows: Rows, step: Step, slots: Slots) -> None:
    """Of this step's samples, once the step is filled. A step without masks after another one writes nothing."""
    count = 0
    if len(rows.masked):
        which = rows.masks_of_samples
        row, sample = np.unique(np.where(which < 0, -1, step.sample_row[: len(which)]), return_index=True)
        row, sample = row[row >= 0], sample[row >= 0]  # samples of one row of logits have one mask
        count, width = len(sample), rows.mask.shape[1]
        slots.put(masks.row, row)
        masks.bits[:count, width:] = 0
        masks.bits[:count, :width] = rows.mask[which[sample]]
        slots.changed(masks.bits, 0, count * masks.bits.shape[1])
    if count or masks.rows[0]:
        masks.rows[0] = count
        slots.changed(masks.rows, 0, 1)
