"""Rotary position embedding: angles of every position."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rope:
    """Base and scaling. `original_context` set: Llama 3's scaling, which divides only slow frequencies."""

    theta: float
    divisor: float = 1.0
    low_frequency: float = 1.0
    high_frequency: float = 1.0
    original_context: int | None = None

    def frequencies(self, head_dim: int) -> Tensor:
        """[head_dim / 2] float32 radians a position."""
        exponent = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
        plain = 1.0 / self.theta**exponent
        if self.original_context is None:
            return plain / self.divisor
        turns = self.original_context * plain / (2 * math.pi)  # of each frequency over the original context
        share = (turns - self.low_frequency) / (self.high_frequency - self.low_frequency)
        return torch.lerp(plain / self.divisor, plain, share.clamp(0, 1))


def tables(frequencies: Tensor, max_context: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each float32 [max_context, head_dim / 2]."""
    angles = torch.arange(max_context).float()[:, None] * frequencies[None, :]
    return angles.cos(), angles.sin()
