"""How large a step may be that a launch has to hold.

Launches are sized by a room, never by what is in it: a captured graph then fits every step that fits its room, and reads
the counts when it runs. Rooms are few: each dimension is rounded up to a size of a short list.
"""

from bisect import bisect_left
from dataclasses import dataclass

SIZES: tuple[int, ...] = (1, 2, 4, 8, *range(16, 128, 16), *range(128, 512, 64), *(512 << i for i in range(12)))


def rounded(count: int, most: int) -> int:
    """The next size that holds `count`, at most `most`."""
    return min(SIZES[bisect_left(SIZES, count)], most)


@dataclass(frozen=True, slots=True)
class Room:
    """Upper bounds, at least 1; what few steps have may be 0, and is not launched then."""

    tokens: int
    rows: int
    samples: int  # no more head rows than samples and scores together
    query: int  # tokens of the longest row; 1: all rows decode
    biased: int = 0
    scores: int = 0

    @classmethod
    def of(
        cls, *, tokens: int, rows: int, samples: int, longest: int, most: "Room", biased: int = 0, scores: int = 0
    ) -> "Room":
        """The room of a step of a worker whose largest one is `most`."""
        few = (biased and rounded(biased, most.biased), scores and rounded(scores, most.scores))
        size = rounded(max(tokens, 1), most.tokens)
        if longest <= 1:
            samples = max(rounded(max(samples, 1), most.samples), min(size, most.samples))
            return cls(size, min(size, most.rows), samples, 1, *few)
        samples = max(rounded(max(samples, 1), most.samples), rounded(max(rows, 1), most.samples))
        return cls(size, rounded(max(rows, 1), most.rows), samples, size, *few)
