"""The last few statuses of a server, and what happened between them.

Everything that a server counts is counted since its start, so the difference of two statuses says what came between them,
and how fast: the server's own uptime is the clock.
"""

from collections import deque
from collections.abc import Callable, Sequence

from octavo.v1 import admin_pb2 as pb

Count = Callable[[pb.GetStatusResponse], float]
Histogram = Callable[[pb.GetStatusResponse], pb.Histogram]


class Window:
    """Holds the statuses of the last `seconds`, at least two of them once they are there."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._statuses: deque[pb.GetStatusResponse] = deque()

    def add(self, status: pb.GetStatusResponse) -> None:
        """Takes the newest status. After a restart of the server nothing older counts."""
        if self._statuses and status.uptime_seconds < self.newest.uptime_seconds:
            self._statuses.clear()
        self._statuses.append(status)
        while len(self._statuses) > 2 and self._statuses[1].uptime_seconds <= status.uptime_seconds - self._seconds:
            self._statuses.popleft()

    @property
    def newest(self) -> pb.GetStatusResponse:
        """The last one added; there must be one."""
        return self._statuses[-1]

    def rate(self, count: Count) -> float:
        """How much a count grew per second; 0 while there is one status only."""
        first, last = self._statuses[0], self._statuses[-1]
        seconds = last.uptime_seconds - first.uptime_seconds
        return (count(last) - count(first)) / seconds if seconds > 0 else 0.0

    def rates(self, count: Count) -> list[float]:
        """The same from each status to the next."""
        found = []
        for before, after in zip(self._statuses, list(self._statuses)[1:], strict=False):
            seconds = after.uptime_seconds - before.uptime_seconds
            found.append((count(after) - count(before)) / seconds if seconds > 0 else 0.0)
        return found

    def quantile(self, histogram: Histogram, share: float) -> float | None:
        """Below this value lies that share of all that came within the window; None when nothing came."""
        first, last = histogram(self._statuses[0]), histogram(self._statuses[-1])
        before: Sequence[int] = first.counts if len(self._statuses) > 1 else ()
        new = [count - old for count, old in zip(last.counts, before or [0] * len(last.counts), strict=True)]
        return quantile(last.bounds, new, share)


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Within a bucket values are taken to lie evenly; above the last bound, at that bound. None without values."""
    rank = share * sum(counts)
    if not rank:
        return None
    below, lower = 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below, lower = below + count, bound
    return lower
