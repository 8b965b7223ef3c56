"""Constrained answers: which logits count."""

import triton
import triton.language as tl


@triton.jit
def mask_logits_kernel(
    rows, row, bits, logits, logits_stride: tl.int64, words: tl.int64, vocabulary, BLOCK: tl.constexpr
):
    """BLOCK tokens of one row. A load of NaN or +inf leaves NaN behind."""
    i = tl.program_id(0)
    if i < tl.load(rows):
        token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        is_one = token < vocabulary
        at = logits + tl.load(row + i).to(tl.int64) * logits_stride + token
        word = tl.load(bits + i * words + token // 32, is_one, other=-1)
        is_forbidden = ((word >> (token % 32)) & 1) == 0
        x = tl.load(at, is_one & is_forbidden, other=0.0)
        tl.store(at, x - float("inf"), is_one & is_forbidden)
