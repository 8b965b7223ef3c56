"""What the worker remembers of each running sequence, in persistent arrays with one element a slot.

The kernels read the same memory, or keep a copy of it that is told of each change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from octavo_kernels.ops import BIAS_WORDS, Sampling

from octavo_worker.limits import MOST_BIASES

Array = NDArray[Any]
Changed = Callable[[Array, int, int], None]
Copied = Callable[[Array, Array, Array], None]
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
    """All slots of a worker. `changed` and `copied` as in Ops."""

    def __init__(
        self,
        *,
        max_slots: int,
        max_context: int,
        page_size: int,
        changed: Changed = lambda array, first, count: None,
        copied: Copied = lambda array, sources, targets: None,
    ) -> None:
        self.changed, self.copied = changed, copied
        self.counts = Counts.empty(max_slots)
        self.table = np.zeros((max_slots, -(-max_context // page_size)), np.int32)
        self.history = np.zeros((max_slots, max_context), np.int32)
        self.columns = {name: np.zeros(max_slots, dtype) for name, dtype in SAMPLING_COLUMNS.items()}
        self.num_biases = np.zeros(max_slots, np.int32)
        self.biases = np.zeros((max_slots, MOST_BIASES * BIAS_WORDS), np.int32)

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
        return Sampling(
            history=share(self.history),
            length=share(self.counts.length),
            num_biases=share(self.num_biases),
            biases=share(self.biases),
            **columns,
        )

    def put(self, array: Array, values: Array, row: int = 0, first: int = 0) -> None:
        """Write values one after the other into a row of an array that kernels share."""
        place = array[row] if array.ndim > 1 else array
        place[first : first + len(values)] = values
        self.changed(array, row * place.size * (array.ndim > 1) + first, len(values))

    def set(self, array: Array, slot: Array, values: Array) -> None:
        """Write a value for each slot."""
        array[slot] = values
        for each in slot.tolist():
            self.changed(array, each, 1)

    def copy_rows(self, sources: Array, targets: Array) -> None:
        """Give slots the table, the history and the sampling of others."""
        biased = (self.biases,) if self.num_biases[sources].any() else ()
        for array in (self.table, self.history, self.num_biases, *biased, *self.columns.values()):
            array[targets] = array[sources]
            self.copied(array, sources, targets)

    def clear(self) -> None:
        """Forget everything."""
        self.counts.assign(Counts.empty(self.max_slots))
