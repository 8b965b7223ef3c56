"""What AWQ and GPTQ do when they store 4 bits."""

import numpy as np


def words_of(values: np.ndarray, order: tuple[int, ...] = tuple(range(8))) -> np.ndarray:
    """int32 [..., n / 8]: value `order[i]` of eight in bits 4 i and above."""
    eight = values.reshape(*values.shape[:-1], -1, 8).astype(np.uint32)
    words = sum(eight[..., place] << np.uint32(4 * i) for i, place in enumerate(order))
    return np.asarray(words, np.uint32).view(np.int32)
