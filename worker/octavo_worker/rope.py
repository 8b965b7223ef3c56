"""Rotary position embedding: angles of every position."""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Rope:
    """Base and scaling. `original_context` set: Llama 3's scaling, which divides only slow frequencies."""

    theta: float
    divisor: float = 1.0
    low_frequency: float = 1.0
    high_frequency: float = 1.0
    original_context: int | None = None

    @property
    def is_sound(self) -> bool:
        """Whether frequencies come out of it that are numbers."""
        positive = (self.theta, self.divisor, *([] if self.original_context is None else [self.original_context]))
        spread = self.high_frequency - self.low_frequency
        return (
            all(0 < value < math.inf for value in positive)
            and math.isfinite(spread)
            and (self.original_context is None or spread != 0)
        )

    def frequencies(self, head_dim: int) -> np.ndarray:
        """[head_dim / 2] float32 radians a position."""
        exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        plain = np.float32(1) / np.float32(self.theta) ** exponent
        divided = plain / np.float32(self.divisor)
        if self.original_context is None:
            return divided
        turns = self.original_context * plain / (2 * math.pi)  # of each frequency over the original context
        share = (turns - self.low_frequency) / (self.high_frequency - self.low_frequency)
        return np.asarray(divided + share.clip(0, 1) * (plain - divided), np.float32)


def tables(frequencies: np.ndarray, max_context: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, each float32 [max_context, head_dim / 2]."""
    angles = np.arange(max_context, dtype=np.float32)[:, None] * frequencies[None, :]
    return np.cos(angles), np.sin(angles)
