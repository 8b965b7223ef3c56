"""Virtual time: happenings in order, none of them by itself."""

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Timeline:
    """A clock that moves from one happening to the next. Seconds since the start of the simulation."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Action]] = []
        self._num_entered = 0

    def clock(self) -> float:
        return self.now

    def at(self, time: float, action: Action) -> None:
        """Happens at `time`, after everything that was entered for the same moment before."""
        self._num_entered += 1
        heappush(self._queue, (time, self._num_entered, action))

    def after(self, seconds: float, action: Action) -> None:
        self.at(self.now + seconds, action)

    def advance(self, until: float) -> bool:
        """Lets the next happening take place if it is due by `until`; otherwise moves the clock there. Whether one did."""
        if self._queue and self._queue[0][0] <= until:
            time, _, action = heappop(self._queue)
            self.now = max(self.now, time)
            action()
            return True
        self.now = max(self.now, until)
        return False

    def stand_still(self, seconds: float) -> None:
        """The whole machine is stopped for a while: the clock has moved when it wakes, and everything happens later."""
        self.now += seconds
        self._queue = [(time + seconds, number, action) for time, number, action in self._queue]
