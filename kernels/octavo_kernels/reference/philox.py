"""Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011)."""

import torch
from torch import Tensor

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF

Counter = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Counter, seed: Tensor) -> Counter:
    """Four words for each element. Words are int64 in [0, 2^32); `seed` int64 holds the bits of an unsigned key."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & LOW, (seed >> 32) & LOW
    for _ in range(ROUNDS):
        # int64 products wrap around; shift and mask still give the high and low words of the unsigned product.
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = ((p1 >> 32) & LOW) ^ c1 ^ k0, p1 & LOW, ((p0 >> 32) & LOW) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


def uniform(position: Tensor, branch: Tensor, purpose: int, seed: Tensor) -> Tensor:
    """float32 in [0, 1) with 24 bits: the first word of counter (position, branch, purpose, 0)."""
    position, branch = position.long(), branch.long()
    first = philox((position, branch, torch.full_like(position, purpose), torch.zeros_like(position)), seed)[0]
    return (first >> 8).float() * 2.0**-24
