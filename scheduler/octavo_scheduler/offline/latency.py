"""How long a step takes, learnt from recorded steps.

seconds = a + b · prefill tokens + c · decode rows + d · (token, earlier token) pairs + e · bytes moved between the tiers

by least squares, with no coefficient below zero: a step cannot get faster by doing more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.worker import Worker


class Load(NamedTuple):
    """What a plan asks of its worker; to be taken when it has just been made."""

    steps: float
    prefill_tokens: float
    decode_rows: float
    attended: float
    moved_bytes: float


class Step(NamedTuple):
    """A step that was timed."""

    load: Load
    seconds: float


def load(plan: StepPlan, worker: Worker) -> Load:
    rows = list(zip(plan.rows, plan.row_tokens, strict=True))
    return Load(
        1,
        sum(num_tokens for _, num_tokens in rows if num_tokens > 1),
        sum(1 for _, num_tokens in rows if num_tokens == 1),
        sum(num_tokens * (branch.planned - num_tokens / 2) for branch, num_tokens in rows),
        (len(plan.swap_out) + len(plan.swap_in)) * worker.joined.page_bytes,
    )


@dataclass(frozen=True)
class LatencyModel:
    """Seconds for each unit of a load."""

    cost: Load

    def seconds(self, of: Load) -> float:
        return sum(cost * amount for cost, amount in zip(self.cost, of, strict=True))


def fit(steps: Sequence[Step]) -> LatencyModel:
    """The model that is nearest to the steps. Raises ValueError when there are none."""
    if not steps:
        raise ValueError("no step was finished, so there is nothing to learn a step's time from")
    names = [i for i in range(len(Load._fields)) if any(step.load[i] for step in steps)]
    while True:
        costs = _least_squares([[step.load[i] for i in names] for step in steps], [step.seconds for step in steps])
        lowest = min(range(len(names)), key=lambda place: costs[place])
        if costs[lowest] >= 0:
            found = dict(zip(names, costs, strict=True))
            return LatencyModel(Load(*(found.get(i, 0.0) for i in range(len(Load._fields)))))
        del names[lowest]


def _least_squares(rows: list[list[float]], targets: list[float]) -> list[float]:
    """Coefficients that bring rows · coefficients nearest to the targets. Columns are scaled to at most 1 in between."""
    scales = [max(abs(row[i]) for row in rows) for i in range(len(rows[0]))]
    scaled = [[value / scale for value, scale in zip(row, scales, strict=True)] for row in rows]
    size = len(scales)
    normal = [[sum(row[i] * row[j] for row in scaled) for j in range(size)] for i in range(size)]
    right = [sum(row[i] * target for row, target in zip(scaled, targets, strict=True)) for i in range(size)]
    for i in range(size):
        normal[i][i] *= 1 + 1e-9  # columns that say the same share the cost
    return [value / scale for value, scale in zip(_solve(normal, right), scales, strict=True)]


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss: the matrix is symmetric and positive definite, so no pivot is zero."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(size):
        for below in range(i + 1, size):
            factor = rows[below][i] / rows[i][i]
            rows[below] = [b - factor * a for a, b in zip(rows[i], rows[below], strict=True)]
    solution = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - known) / rows[i][i]
    return solution
