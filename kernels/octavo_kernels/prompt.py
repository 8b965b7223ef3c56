"""What `Ops` says of kernels that have done what they were given when they return, in the memory of everybody else."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo_kernels.ops import Array, MovePages


@dataclass(frozen=True, slots=True)
class There:
    """Elements that are there already."""

    elements: np.ndarray

    def is_there(self) -> bool:
        return True

    def wait(self) -> np.ndarray:
        return self.elements


class TimedMoves:
    """Moves pages, and adds up how long moves between the tiers take."""

    def __init__(self, move: MovePages) -> None:
        self.move, self.seconds = move, 0.0

    def __call__(self, source: Array, source_ids: np.ndarray, target: Array, target_ids: np.ndarray) -> None:
        started = time.perf_counter()
        self.move(source, source_ids, target, target_ids)
        if source is not target:
            self.seconds += time.perf_counter() - started


def prompt(move: MovePages) -> dict[str, Any]:
    """Functions of the door that have little to do, and the moves."""
    moves = TimedMoves(move)
    return {
        "changed": lambda array, first, count: None,
        "copied": lambda array, sources, targets: None,
        "fetch": lambda array, count: There(array[:count].copy()),
        "move_pages": moves,
        "fence": lambda: None,
        "swap_seconds": lambda: moves.seconds,
    }
