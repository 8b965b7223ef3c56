"""Pools as bytes, whoever made them."""

import numpy as np
from octavo_kernels.ops import Array

NAN_BYTE = 255
"""A pool full of it is full of NaN in float32, bfloat16 and float16, and has scales of NaN in int8."""


def memory(pool: Array) -> np.ndarray:
    """uint8 [page, byte]: the memory itself."""
    return np.asarray(pool)


def poison(pool: Array) -> None:
    """Fill a pool with what nobody may read."""
    memory(pool)[:] = NAN_BYTE
