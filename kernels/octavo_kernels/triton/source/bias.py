"""Biases of logits."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

WORDS = tl.constexpr(4)  # ops.BIAS_WORDS


class Biased(NamedTuple):
    """Of a step: see ops.Step."""

    count: Any
    row: Any
    slot: Any


class Biases(NamedTuple):
    """See ops.Sampling."""

    num_biases: Any
    biases: Any
    num_prompt: Any
    length: Any
    history: Any


@triton.jit
def bias_kernel(
    biased,
    columns,
    logits,
    out,
    logits_stride: tl.int64,
    out_stride: tl.int64,
    bias_width: tl.int64,
    history_width: tl.int64,
    vocabulary,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """CHUNK tokens of one row. Several biases may meet at a token: sums with minus infinity do not depend on their order."""
    which = tl.program_id(0)
    if which < tl.load(biased.count):
        slot = tl.load(biased.slot + which).to(tl.int64)
        first = tl.program_id(1) * CHUNK
        end = tl.minimum(first + CHUNK, vocabulary)
        row = logits + tl.load(biased.row + which).to(tl.int64) * logits_stride
        own = out + which.to(tl.int64) * out_stride
        token = first + tl.arange(0, CHUNK)
        tl.store(own + token, tl.load(row + token, token < end, other=0.0), token < end)
        tl.debug_barrier()
        length = tl.load(columns.length + slot)
        answered = length - tl.load(columns.num_prompt + slot)
        said = columns.history + slot * history_width + length
        count = tl.load(columns.num_biases + slot)
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK)
            bias = columns.biases + slot * bias_width + i * WORDS
            target = tl.load(bias, i < count, other=-1)
            context = tl.load(bias + 3, i < count, other=-1)
            is_on = (target >= first) & (target < end) & (length < tl.load(bias + 2, i < count, other=0))
            is_on = is_on & (context >= 0) & (context <= answered)
            for back in range(1, tl.max(tl.where(is_on, context, 0), 0) + 1):
                wanted = tl.load(bias - back * WORDS, is_on & (back <= context), other=0)
                is_on = is_on & ((back > context) | (wanted == tl.load(said - back)))
            amount = tl.load(bias + 1, is_on, other=0).to(tl.float32, bitcast=True)
            tl.atomic_add(own + target, amount, is_on, sem="relaxed")
