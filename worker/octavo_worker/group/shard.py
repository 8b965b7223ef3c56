"""Which part of a decoder each rank of a tensor-parallel group has."""

from dataclasses import dataclass, replace
from hashlib import sha256

from octavo_kernels.int4 import Int4
from octavo_kernels.ops import BLOCK_BYTES, BLOCK_ELEMENTS, Blocks

from octavo_worker.architecture import Architecture
from octavo_worker.errors import ConfigError
from octavo_worker.source import Tensor

GROUPED = ("int4", "int8_groups")
"""Formats in which 32 inputs share a scale: columns are cut between such groups."""
ROUNDED_BY_ROW = ("int8",)
"""Formats in which all inputs of a matrix share a scale: what is rounded depends on how many there are."""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of rows or columns: `start` to `stop` of `whole`."""

    whole: int
    start: int
    stop: int

    def of_rows(self, tensor: Tensor) -> Tensor:
        """These rows of a matrix or elements of a vector, without a copy."""
        if isinstance(tensor, Blocks):
            return Blocks(tensor.kind, tensor.data[self.start : self.stop])
        if isinstance(tensor, Int4):
            return tensor.rows(self.start, self.stop)
        return tensor[self.start : self.stop]

    def of_columns(self, tensor: Tensor) -> Tensor:
        """These columns of a matrix; quantised as they are, if no block or group is cut."""
        if isinstance(tensor, Int4):
            return tensor.columns(self.start, self.stop)
        if not isinstance(tensor, Blocks):
            return tensor[:, self.start : self.stop]
        if self.start % BLOCK_ELEMENTS or self.stop % BLOCK_ELEMENTS:
            return tensor.floats()[:, self.start : self.stop]
        first, last = (end // BLOCK_ELEMENTS * BLOCK_BYTES[tensor.kind] for end in (self.start, self.stop))
        return Blocks(tensor.kind, tensor.data[:, first:last])


def all_of(size: int) -> Part:
    """Nothing is cut off."""
    return Part(size, 0, size)


@dataclass(frozen=True, slots=True)
class Shard:
    """Rank `rank` of `size`. Heads and the inner width of the feed-forward part are shared out evenly; where there are more
    ranks than KV heads, several ranks hold the same one."""

    rank: int = 0
    size: int = 1

    def of(self, a: Architecture, format: str = "") -> Architecture:
        """This rank's decoder: fewer heads and a narrower inner width; the residual and the vocabulary are whole.

        Raises ConfigError if the model cannot be shared out among so many, in that format of weights.
        """
        if not divides(self.size, a, format):
            others = [str(size) for size in range(2, a.heads + 1) if divides(size, a, format)]
            raise ConfigError(
                f"--tensor-parallel-size {self.size} does not divide this model: it has {a.heads} query heads, "
                f"{a.kv_heads} KV heads and an inner width of {a.intermediate}"
                + (f", of which {format} takes 32 columns at a time" if format in GROUPED else "")
                + f"; {', '.join(others) or 'no size'} would do"
            )
        own = max(1, a.kv_heads // self.size)
        return replace(a, heads=a.heads // self.size, kv_heads=own, intermediate=a.intermediate // self.size)

    def queries(self, a: Architecture) -> Part:
        """Rows of the query matrix, and columns of the output matrix."""
        return self.even(a.q_width)

    def keys(self, a: Architecture) -> Part:
        """Rows of the key matrix, or of the value matrix: those that this rank's queries look at."""
        start = self.rank * a.kv_heads // self.size * a.head_dim
        return Part(a.kv_width, start, start + max(1, a.kv_heads // self.size) * a.head_dim)

    def inner(self, a: Architecture) -> Part:
        """Rows of the gate and up matrices, and columns of the down matrix."""
        return self.even(a.intermediate)

    def vocabulary(self, a: Architecture) -> Part:
        """Rows of the head."""
        return self.even(a.vocab)

    def even(self, whole: int) -> Part:
        """Runs that differ by one at most."""
        return Part(whole, self.rank * whole // self.size, (self.rank + 1) * whole // self.size)

    def digest(self, weights: bytes, format: str) -> bytes:
        """Of what answers follow from. The number of ranks changes them as other kernels do, by the order of sums, and is
        left out: a group and a worker alone stand in for each other. Not so where each rank rounds its own columns."""
        if self.size == 1 or format not in ROUNDED_BY_ROW:
            return weights
        return sha256(weights + f"/{self.size}".encode()).digest()


WHOLE = Shard()


def divides(size: int, a: Architecture, format: str) -> bool:
    """Whether every rank gets whole heads, as many as the others, and whole groups of columns."""
    if a.heads % size or (a.kv_heads % size and size % a.kv_heads) or a.intermediate % size or a.vocab < size:
        return False
    return size == 1 or format not in GROUPED or not (a.q_width // size % 32 or a.intermediate // size % 32)
