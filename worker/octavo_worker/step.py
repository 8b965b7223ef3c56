"""What a step computes, in persistent arrays, filled from a plan's rows and the slots."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from octavo_kernels.ops import Geometry, Step

from octavo_worker.batch import Rows
from octavo_worker.slots import Array, Slots

ARRAYS = (
    *("token", "position", "kv_index", "row_slot", "row_start", "row_length"),
    *("table", "head_token", "sample_row", "sample_slot"),
    *("tokens", "rows", "head_rows", "samples", "longest"),
)
"""Those of a Step that kernels share."""


def new_step(slots: Slots, geometry: Geometry, max_tokens: int) -> Step:
    """Room for `max_tokens` tokens of one row a slot, in numpy."""

    def ints(size: int) -> Array:
        return np.zeros(size, np.int32)

    rows = slots.max_slots
    return Step(
        geometry=geometry,
        token=ints(max_tokens),
        position=ints(max_tokens),
        kv_index=np.full(max_tokens, -1, np.int64),
        row_slot=np.full(rows, -1, np.int32),
        row_start=ints(rows + 1),
        row_length=ints(rows),
        table=slots.table,
        head_token=ints(rows),
        sample_row=ints(rows),
        sample_slot=ints(rows),
    )


def shared(step: Step, share: Callable[[Array], Any]) -> Step:
    """The same step for kernels, which `share` its arrays."""
    return replace(step, **{name: share(getattr(step, name)) for name in ARRAYS})


def fill(step: Step, rows: Rows, slots: Slots) -> None:
    """Describe the rows. Call it once the plan is applied: tables are read from the slots."""
    size = step.geometry.page_size
    ends = rows.num_tokens.cumsum()
    first = slots.counts.computed[rows.slot].astype(np.int64)
    nth = np.arange(ends[-1]) - np.repeat(ends - rows.num_tokens, rows.num_tokens)
    position = np.repeat(first, rows.num_tokens) + nth
    slot = np.repeat(rows.slot, rows.num_tokens)
    sampling = rows.num_samples > 0
    slots.put(step.position, position)
    slots.put(step.kv_index, slots.table[slot, position // size].astype(np.int64) * size + position % size)
    slots.put(step.row_slot, rows.slot)
    slots.put(step.row_start, ends, first=1)
    slots.put(step.row_length, first + rows.num_tokens)
    slots.put(step.head_token, ends[sampling] - 1)
    slots.put(step.sample_row, np.repeat(sampling.cumsum() - 1, rows.num_samples))
    slots.put(step.sample_slot, rows.sample_slot)
    num_head_rows, num_samples = int(sampling.sum()), len(rows.sample_slot)
    step.count(
        tokens=len(position),
        rows=len(rows.slot),
        head_rows=num_head_rows,
        samples=num_samples,
        longest=int(rows.num_tokens.max()),
    )
    for count in (step.tokens, step.rows, step.head_rows, step.samples, step.longest):
        slots.changed(count, 0, 1)
