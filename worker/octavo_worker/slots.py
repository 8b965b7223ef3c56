"""What the worker remembers of each running sequence, in persistent arrays with one element a slot.

The kernels read the same memory, so that filling the arrays is cheap and needs no copy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from octavo_kernels.ops import Sampling

Array = NDArray[Any]
SAMPLING_COLUMNS = {
    "temperature": np.float32,
    "top_p": np.float32,
    "min_p": np.float32,
    "top_k": np.int32,
    "repetition_penalty": np.float32,
    "presence_penalty": np.float32,
    "frequency_penalty": np.float32,
    "seed": np.int64,
    "branch": np.int32,
    "num_prompt": np.int32,
}


@dataclass(slots=True)
class Counts:
    """The part of the state that a plan's check has to foresee. All [slots]."""

    is_active: Array  # bool
    length: Array  # int32: known tokens, prompt and answer
    computed: Array  # int32: of those, how many have K and V in pages
    num_pages: Array  # int32: pages in the block table

    @classmethod
    def empty(cls, slots: int) -> "Counts":
        """No slot is active."""
        return cls(np.zeros(slots, bool), *(np.zeros(slots, np.int32) for _ in range(3)))

    def copy(self) -> "Counts":
        """A draft that may be thrown away."""
        return Counts(self.is_active.copy(), self.length.copy(), self.computed.copy(), self.num_pages.copy())

    def clear(self, slot: Array) -> None:
        """Give slots up."""
        self.is_active[slot] = False
        self.length[slot] = self.computed[slot] = self.num_pages[slot] = 0

    def assign(self, other: "Counts") -> None:
        """Take over another's values, in place."""
        self.is_active[:], self.length[:] = other.is_active, other.length
        self.computed[:], self.num_pages[:] = other.computed, other.num_pages


class Slots:
    """All slots of a worker."""

    def __init__(self, *, max_slots: int, max_context: int, page_size: int) -> None:
        self.counts = Counts.empty(max_slots)
        self.table = np.zeros((max_slots, -(-max_context // page_size)), np.int32)
        self.history = np.zeros((max_slots, max_context), np.int32)
        self.columns = {name: np.zeros(max_slots, dtype) for name, dtype in SAMPLING_COLUMNS.items()}

    @property
    def max_slots(self) -> int:
        """Slots are 0..max_slots-1."""
        return self.history.shape[0]

    @property
    def max_context(self) -> int:
        """Most tokens of one sequence."""
        return self.history.shape[1]

    @property
    def max_pages(self) -> int:
        """Most pages of one block table."""
        return self.table.shape[1]

    def sampling(self, share: Callable[[Array], Any]) -> Sampling:
        """The same memory for kernels, which `share` it."""
        columns = {name: share(column) for name, column in self.columns.items()}
        return Sampling(history=share(self.history), length=share(self.counts.length), **columns)

    def clear(self) -> None:
        """Forget everything."""
        self.counts.assign(Counts.empty(self.max_slots))
