"""How many tokens a step of a worker may have, after one ran out of memory.

What a step needs beyond pages grows with its tokens. So the next one gets an eighth of those that failed, and the budget
comes back by doubling; the oftener memory ran out, the more good steps it takes. A step of one token cannot be made
smaller: then it is its row's own fault.
"""

from dataclasses import dataclass

SHRINK = 8
"""What the tokens of a failed step are divided by."""
LEAST_PATIENCE, MOST_PATIENCE = 16, 4096
"""Good steps before the budget is doubled."""


@dataclass(slots=True)
class Appetite:
    """Of one worker. Everything but `patience` and `num_good` is in tokens."""

    most: int
    budget: int = 0
    patience: int = LEAST_PATIENCE
    num_good: int = 0

    def __post_init__(self) -> None:
        self.budget = self.most

    def shrink(self, row_tokens: list[int]) -> bool:
        """A step with these rows ran out of memory. Whether smaller ones are worth a try."""
        if sum(row_tokens) < 2:
            return False
        self.budget = max(1, sum(row_tokens) // SHRINK)
        self.patience = min(2 * self.patience, MOST_PATIENCE)
        self.num_good = 0
        return True

    def note_good(self) -> None:
        """A step was done."""
        self.num_good += 1
        if self.budget < self.most and self.num_good >= self.patience:
            self.budget = min(2 * self.budget, self.most)
            self.num_good = 0

    def restore(self) -> None:
        """It was one sequence's fault, and that is gone."""
        self.budget = self.most
