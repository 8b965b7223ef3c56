"""What a step computes, in persistent arrays, filled from a plan's rows and the slots."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from octavo_kernels.ops import Geometry, Step

from octavo_worker.batch import Rows
from octavo_worker.check import owners
from octavo_worker.limits import MOST_PROMPT_SCORES
from octavo_worker.slots import Array, Slots

ARRAYS = (
    *("token", "position", "kv_index", "row_slot", "row_start", "row_length"),
    *("table", "head_token", "sample_row", "sample_slot"),
    *("tokens", "rows", "head_rows", "samples", "longest"),
    *("biased", "bias_row", "bias_slot", "scores", "score_row", "score_slot", "score_position"),
)
"""Those of a Step that kernels share."""


def new_step(slots: Slots, geometry: Geometry, max_tokens: int) -> Step:
    """Room for `max_tokens` tokens of one row a slot, in numpy."""

    def ints(size: int) -> Array:
        return np.zeros(size, np.int32)

    rows = slots.max_slots
    head_rows = head_rows_of(rows)
    return Step(
        geometry=geometry,
        token=ints(max_tokens),
        position=ints(max_tokens),
        kv_index=np.full(max_tokens, -1, np.int64),
        row_slot=np.full(rows, -1, np.int32),
        row_start=ints(rows + 1),
        row_length=ints(rows),
        table=slots.table,
        head_token=ints(head_rows),
        sample_row=ints(rows),
        sample_slot=ints(rows),
        bias_row=ints(rows),
        bias_slot=ints(rows),
        score_row=ints(head_rows),
        score_slot=ints(head_rows),
        score_position=ints(head_rows),
    )


def head_rows_of(max_slots: int) -> int:
    """Most rows of logits of a step: samples and prompt tokens that have their log-probabilities told."""
    return max_slots + MOST_PROMPT_SCORES


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
    heads, sample_row = ends[sampling] - 1, np.repeat(sampling.cumsum() - 1, rows.num_samples)
    if len(rows.score_slot):
        heads, sample_row = score(step, rows, slots, ends - rows.num_tokens - first, heads, sample_row)
    has_bias = slots.num_biases[rows.sample_slot] > 0
    if len(rows.masked) and len(rows.score_slot):  # a copy of its own too: log-probabilities are those of the model
        has_bias |= rows.masks_of_samples >= 0
    num_biased = int(np.count_nonzero(has_bias))
    if num_biased:
        slots.put(step.bias_row, sample_row[has_bias])
        slots.put(step.bias_slot, rows.sample_slot[has_bias])
        sample_row[has_bias] = len(step.head_token) + np.arange(num_biased)
    slots.put(step.head_token, heads)
    slots.put(step.sample_row, sample_row)
    slots.put(step.sample_slot, rows.sample_slot)
    step.count(
        tokens=len(position),
        rows=len(rows.slot),
        head_rows=len(heads),
        samples=len(rows.sample_slot),
        longest=int(rows.num_tokens.max()),
        biased=num_biased,
        scores=len(rows.score_slot),
    )
    for count in (step.tokens, step.rows, step.head_rows, step.samples, step.longest, step.biased, step.scores):
        slots.changed(count, 0, 1)


def score(step: Step, rows: Rows, slots: Slots, shift: Array, heads: Array, sample_row: Array) -> tuple[Array, Array]:
    """Tokens that go through the head, those before scored ones too, and the rows of samples among them.

    `shift` [rows]: added to a position it gives the token's place in the step.
    """
    before = rows.score_position - 1 + shift[owners(rows, slots.max_slots)[rows.score_slot]]
    every = np.unique(np.concatenate((heads, before)))
    slots.put(step.score_row, np.searchsorted(every, before))
    slots.put(step.score_slot, rows.score_slot)
    slots.put(step.score_position, rows.score_position)
    return every, np.searchsorted(every, heads)[sample_row]
