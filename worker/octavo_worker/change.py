"""Applying a checked plan to the slots, and remembering what its rows did."""

import numpy as np

from octavo_worker.batch import Forks, Growth, NewSlots, Plan, Rows
from octavo_worker.slots import Counts, Slots


def apply(plan: Plan, counts: Counts, slots: Slots) -> None:
    """Bring histories and tables to where `counts` (from `check.foresee`) says they are."""
    start(plan.new, slots)
    grow(plan.growth, counts, slots)
    fork(plan.forks, slots)
    slots.counts.assign(counts)
    slots.changed(slots.counts.length, 0, slots.max_slots)


def start(new: NewSlots, slots: Slots) -> None:
    ends = new.num_tokens.cumsum()
    for slot, first, end in zip(new.slot, ends - new.num_tokens, ends, strict=True):
        slots.put(slots.history, new.tokens[first:end], slot)
    for name, values in new.sampling.items():
        slots.set(slots.columns[name], new.slot, values)
    slots.set(slots.num_biases, new.slot, new.num_biases)
    if len(new.biases):
        ends = new.num_biases.cumsum()
        for slot, first, end in zip(new.slot, ends - new.num_biases, ends, strict=True):
            slots.put(slots.biases, new.biases[first:end].reshape(-1), slot)


def grow(growth: Growth, counts: Counts, slots: Slots) -> None:
    """New pages come last, so a table's length after the plan tells where they begin, whatever was dropped before."""
    ends = growth.num_pages.cumsum()
    for slot, first, end in zip(growth.slot, ends - growth.num_pages, ends, strict=True):
        slots.put(slots.table, growth.pages[first:end], slot, counts.num_pages[slot] - (end - first))


def fork(forks: Forks, slots: Slots) -> None:
    if not len(forks.source):
        return
    slots.copy_rows(forks.source, forks.target)
    slots.set(slots.columns["branch"], forks.target, forks.branch)
    slots.set(slots.columns["seed"], forks.target, forks.seed)


def advance(rows: Rows, slots: Slots) -> None:
    """The rows have run: their tokens have K and V, and each sampled slot knows one token more, put there by the kernels."""
    counts = slots.counts
    counts.computed[rows.slot] += rows.num_tokens.astype(np.int32)
    owner = np.repeat(rows.slot, rows.num_samples)
    counts.computed[rows.sample_slot] = counts.computed[owner]  # a fork shares the pages its source just wrote
    counts.length[rows.sample_slot] += 1
