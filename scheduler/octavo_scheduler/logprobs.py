"""Log-probabilities as workers send them, position by position."""

from collections.abc import Iterator
from struct import iter_unpack

Pair = tuple[int, float]
"""A token and its log-probability."""


def positions(data: bytes, num_best: int | None) -> Iterator[tuple[Pair | None, list[Pair]]]:
    """Of pairs as in core.events: the position's own, and the most likely ones. A token of -1 stands where there is none."""
    pairs: list[Pair | None] = [(token, value) if token >= 0 else None for token, value in iter_unpack("<if", data)]
    each = 1 + (num_best or 0)
    for first in range(0, len(pairs), each):
        yield pairs[first], [pair for pair in pairs[first + 1 : first + each] if pair is not None]
