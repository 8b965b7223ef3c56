"""Log-probabilities of the tokens that came, and of the most likely ones."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from octavo_kernels.triton.source.ranking import (
    LISTED,
    MASS_OF_ONE,
    TOKEN_BITS,
    bits_of,
    collect,
    distances,
    mass_of_likely,
    ranked,
    reach,
    survey,
)

TOKEN_MASK = tl.constexpr((1 << 18) - 1)
PAST = tl.constexpr(1 << 62)  # more than any key


class Scores(NamedTuple):
    """Of a step: see ops.Step."""

    count: Any
    row: Any
    slot: Any
    position: Any


@triton.jit
def next_key(row, vocabulary, top, last, BLOCK: tl.constexpr):
    """The smallest key of the row past the last one."""
    smallest = tl.full([BLOCK], PAST, tl.int64)
    for start in range(0, vocabulary, BLOCK):
        token = start + tl.arange(0, BLOCK)
        x = tl.load(row + token, token < vocabulary, other=float("-inf"))
        key = bits_of(distances(x, top, 1.0)) << TOKEN_BITS | token
        smallest = tl.minimum(smallest, tl.where((key > last) & (x > float("-inf")), key, PAST))
    return tl.min(smallest, 0)


@triton.jit
def list_best(row, vocabulary, maxima, top, log_total, list, values, ids, num_best, BLOCK: tl.constexpr):
    """The first `num_best` ranks and their log-probabilities, as far as there are so many that have one."""
    end = reach(maxima, vocabulary, top, 1.0, num_best)
    count = collect(row, vocabulary, top, 1.0, 0, end, list, BLOCK)
    keys, _ = ranked(row, top, 1.0, list, count)
    is_one = tl.arange(0, LISTED) < count
    last = tl.full([], -1, tl.int64)
    for i in range(num_best):
        if count > LISTED:
            last = next_key(row, vocabulary, top, last, BLOCK)
            token = (last & TOKEN_MASK).to(tl.int32)
        else:
            last = tl.min(tl.where(is_one & (keys > last), keys, PAST), 0)
            token = tl.load(list + (last & (LISTED - 1)), last < PAST, other=0)
        value = tl.load(row + token, last < PAST, other=float("-inf")) - top - log_total
        tl.store(ids + i, tl.where(value > float("-inf"), token, -1))
        tl.store(values + i, value)


@triton.jit
def logprobs_kernel(
    scores,
    history,
    logits,
    lists,
    values,
    ids,
    logits_stride: tl.int64,
    history_width: tl.int64,
    vocabulary,
    num_best,
    BLOCK: tl.constexpr,
):
    """One token: values and ids [1 + num_best] of it, then of the best. `lists` has room for a list of each."""
    score = tl.program_id(0)
    if score < tl.load(scores.count):
        row = logits + tl.load(scores.row + score).to(tl.int64) * logits_stride
        values += score * (1 + num_best)
        ids += score * (1 + num_best)
        maxima, is_below = survey(row, vocabulary)
        top = tl.max(maxima, 0)
        if is_below & (top > float("-inf")):
            said = history + tl.load(scores.slot + score).to(tl.int64) * history_width
            token = tl.load(said + tl.load(scores.position + score))
            total = mass_of_likely(row, vocabulary, top, 1.0, 0, BLOCK)
            log_total = tl.log(total.to(tl.float32) / MASS_OF_ONE)
            tl.store(ids, token)
            tl.store(values, tl.load(row + token) - top - log_total)
            list = lists + score.to(tl.int64) * LISTED
            list_best(row, vocabulary, maxima, top, log_total, list, values + 1, ids + 1, num_best, BLOCK)
        else:
            for i in range(1 + num_best):
                tl.store(ids + i, -1)
                tl.store(values + i, float("-inf"))
