"""How fast the queue moves, by counts."""

from dataclasses import dataclass

PERIOD = 1.0
"""Seconds at least between two estimates."""
SHORTEST_WAIT, LONGEST_WAIT = 0.1, 60.0
"""Seconds; nobody is told to come back sooner or later than that."""


@dataclass(slots=True)
class Pace:
    """Prompt tokens that leave the queue per second. A new period counts as much as all earlier ones together."""

    rate: float = 0.0
    num_tokens: int = 0
    since: float | None = None

    def note(self, num_tokens: int, now: float) -> None:
        """So many prompt tokens were admitted."""
        self._estimate(now)
        self.num_tokens += num_tokens

    def seconds(self, num_tokens: int, now: float) -> float:
        """How long so many tokens need; one period as long as nothing is known."""
        self._estimate(now)
        if not self.rate:
            return PERIOD
        if num_tokens >= LONGEST_WAIT * self.rate:
            return LONGEST_WAIT
        return max(SHORTEST_WAIT, num_tokens / self.rate)

    def _estimate(self, now: float) -> None:
        if self.since is None:
            self.since = now
        passed = now - self.since
        if passed >= PERIOD:
            rate = self.num_tokens / passed
            self.rate = (self.rate + rate) / 2 if self.rate else rate
            self.num_tokens, self.since = 0, now
