"""Rotary position embedding: angles of every position."""

import math
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True, slots=True)
class Rope:
    """Base, and what all frequencies are divided by (linear scaling). Cosines and sines are multiplied by `magnitude`."""

    theta: float
    divisor: float = 1.0
    magnitude: float = 1.0

    @property
    def is_sound(self) -> bool:
        """Whether frequencies can come out of it that are numbers."""
        numbers = [getattr(self, field.name) for field in fields(self) if field.name != "truncate"]
        return self.theta > 1 and all(0 < number < math.inf for number in numbers)

    def frequencies(self, head_dim: int) -> np.ndarray:
        """[head_dim / 2] float32 radians a position."""
        return self.plain(head_dim) / np.float32(self.divisor)

    def plain(self, head_dim: int) -> np.ndarray:
        """Unscaled ones."""
        exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        return np.asarray(np.float32(1) / np.float32(self.theta) ** exponent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3(Rope):
    """Divides slow frequencies only: by how often they turn within the original context."""

    original_context: int
    low_frequency: float  # turns up to which a frequency is divided
    high_frequency: float  # turns from which it is left alone

    def frequencies(self, head_dim: int) -> np.ndarray:
        """[head_dim / 2] float32 radians a position."""
        plain = self.plain(head_dim)
        divided = plain / np.float32(self.divisor)
        turns = self.original_context * plain / (2 * math.pi)
        share = (turns - self.low_frequency) / (self.high_frequency - self.low_frequency)
        return np.asarray(divided + share.clip(0, 1) * (plain - divided), np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn(Rope):
    """The same idea, with a ramp over dimensions (arXiv 2309.00071)."""

    original_context: int
    beta_fast: float = 32.0  # turns from which a frequency is left alone
    beta_slow: float = 1.0  # turns up to which it is divided
    truncate: bool = True  # the ramp begins and ends at whole dimensions

    def frequencies(self, head_dim: int) -> np.ndarray:
        """[head_dim / 2] float32 radians a position."""
        plain = self.plain(head_dim)
        low, high = self.dimension(self.beta_fast, head_dim), self.dimension(self.beta_slow, head_dim)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_dim - 1)
        ramp = (np.arange(head_dim // 2, dtype=np.float32) - low) / ((high - low) or 0.001)
        share = 1 - ramp.clip(0, 1)
        return np.asarray(plain / np.float32(self.divisor) * (1 - share) + plain * share, np.float32)

    def dimension(self, turns: float, head_dim: int) -> float:
        """Which frequency turns so often within the original context."""
        return head_dim * math.log(self.original_context / (turns * 2 * math.pi)) / (2 * math.log(self.theta))


def yarn_magnitude(factor: float, scale: float = 1.0) -> float:
    """By which attention at a context that is `factor` times longer gets sharper; its root is in queries and in keys."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def tables(frequencies: np.ndarray, max_context: int, magnitude: float) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines times the magnitude, each float32 [max_context, head_dim / 2]."""
    angles = np.arange(max_context, dtype=np.float32)[:, None] * frequencies[None, :]
    return np.cos(angles) * np.float32(magnitude), np.sin(angles) * np.float32(magnitude)
