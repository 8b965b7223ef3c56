"""The kernels' view of a step: persistent tensors, filled from a plan's rows and the slots."""

import numpy as np
import torch
from octavo_kernels.ops import Geometry, Step

from octavo_worker.batch import Rows
from octavo_worker.slots import Array, Slots


def new_step(slots: Slots, geometry: Geometry, max_tokens: int) -> Step:
    """Room for `max_tokens` tokens of one row a slot."""

    def ints(size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int32)

    rows = slots.max_slots
    return Step(
        geometry=geometry,
        token=ints(max_tokens),
        position=ints(max_tokens),
        kv_index=torch.full((max_tokens,), -1, dtype=torch.int64),
        row_slot=torch.full((rows,), -1, dtype=torch.int32),
        row_start=ints(rows + 1),
        row_length=ints(rows),
        table=torch.from_numpy(slots.table),
        head_token=ints(rows),
        sample_row=ints(rows),
        sample_slot=ints(rows),
    )


def fill(step: Step, rows: Rows, slots: Slots) -> None:
    """Describe the rows. Call it once the plan is applied: tokens and tables are read from the slots."""
    size = step.geometry.page_size
    ends = rows.num_tokens.cumsum()
    first = slots.counts.computed[rows.slot].astype(np.int64)
    nth = np.arange(ends[-1]) - np.repeat(ends - rows.num_tokens, rows.num_tokens)
    position = np.repeat(first, rows.num_tokens) + nth
    slot = np.repeat(rows.slot, rows.num_tokens)
    sampling = rows.num_samples > 0
    put(step.token, slots.history[slot, position])
    put(step.position, position)
    put(step.kv_index, slots.table[slot, position // size].astype(np.int64) * size + position % size)
    put(step.row_slot, rows.slot)
    put(step.row_start[1:], ends)
    put(step.row_length, first + rows.num_tokens)
    put(step.head_token, ends[sampling] - 1)
    put(step.sample_row, np.repeat(sampling.cumsum() - 1, rows.num_samples))
    put(step.sample_slot, rows.sample_slot)
    step.num_tokens, step.num_rows = len(position), len(rows.slot)
    step.num_head_rows, step.num_samples = int(sampling.sum()), len(rows.sample_slot)


def put(target: torch.Tensor, values: Array) -> None:
    target.numpy()[: len(values)] = values
