"""Choosing tokens. The rule is in `octavo_kernels.reference.sampling`; a filter keeps the first so many ranks."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from octavo_kernels.triton.source.ranking import (
    LARGEST,
    LISTED,
    MASS_OF_ONE,
    TOKEN_BITS,
    WANTED,
    collect,
    find,
    mass_of_likely,
    reach,
    survey,
)

PURPOSE_TOKEN = tl.constexpr(0)
IN_PROMPT = tl.constexpr(-(2**31))  # a bit beside the number of times that an answer says a token


class Samples(NamedTuple):
    """Of a step: see ops.Step."""

    count: Any
    row: Any
    slot: Any


class Columns(NamedTuple):
    """See ops.Sampling."""

    temperature: Any
    top_p: Any
    min_p: Any
    top_k: Any
    repetition_penalty: Any
    presence_penalty: Any
    frequency_penalty: Any
    seed: Any
    branch: Any
    num_prompt: Any
    length: Any
    history: Any


@triton.jit
def uniform(position, branch, purpose, seed):
    """float32 in [0, 1) with 24 bits: the first word of counter (position, branch, purpose, 0)."""
    word, _, _, _ = tl.philox(seed, position, branch, purpose, 0)
    return (word >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08  # 2^-24


@triton.jit
def penalties_of(columns, slot):
    """Repetition, presence and frequency penalty of a slot, and whether it has one."""
    repetition = tl.load(columns.repetition_penalty + slot)
    presence, frequency = tl.load(columns.presence_penalty + slot), tl.load(columns.frequency_penalty + slot)
    return repetition, presence, frequency, (repetition != 1.0) | (presence != 0.0) | (frequency != 0.0)


@triton.jit
def count_said(said, history, num_prompt, length, first, end, BLOCK: tl.constexpr):
    """Notes in `said` how often the answer says each token from `first` on, before `end`, and which the prompt has."""
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        token = tl.load(history + i, i < length, other=-1)
        is_one = (token >= first) & (token < end)
        tl.atomic_or(said + token, IN_PROMPT, is_one & (i < num_prompt), sem="relaxed")
        tl.atomic_add(said + token, 1, is_one & (i >= num_prompt), sem="relaxed")


@triton.jit
def penalise_kernel(
    samples,
    columns,
    logits,
    said,
    penalised,
    logits_stride: tl.int64,
    history_width: tl.int64,
    vocabulary,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """CHUNK tokens of one sample that has a penalty: penalised [S, V]; `said` is the same memory as int32."""
    sample = tl.program_id(0)
    if sample < tl.load(samples.count):
        slot = tl.load(samples.slot + sample).to(tl.int64)
        repetition, presence, frequency, has_penalty = penalties_of(columns, slot)
        if has_penalty:
            first = tl.program_id(1) * CHUNK
            end = tl.minimum(first + CHUNK, vocabulary)
            own = sample.to(tl.int64) * vocabulary
            token = first + tl.arange(0, CHUNK)
            tl.store(said + own + token, tl.full([CHUNK], 0, tl.int32), token < end)
            tl.debug_barrier()
            history, prompt = columns.history + slot * history_width, tl.load(columns.num_prompt + slot)
            count_said(said + own, history, prompt, tl.load(columns.length + slot), first, end, BLOCK)
            tl.debug_barrier()
            found = tl.load(said + own + token, token < end, other=0)
            row = logits + tl.load(samples.row + sample).to(tl.int64) * logits_stride
            x = tl.load(row + token, token < end, other=0.0)
            x = tl.where(found != 0, tl.where(x > 0, tl.div_rn(x, tl.zeros_like(x) + repetition), x * repetition), x)
            times = (found & 0x7FFFFFFF).to(tl.float32)
            x = x - tl.where(times > 0, presence, 0.0) - frequency * times
            tl.store(penalised + own + token, x, token < end)


@triton.jit
def first_of(row, vocabulary, value, BLOCK: tl.constexpr):
    """The lowest token id that has this logit."""
    lowest = tl.full([BLOCK], 0x7FFFFFFF, tl.int32)
    for start in range(0, vocabulary, BLOCK):
        token = start + tl.arange(0, BLOCK)
        is_one = (token < vocabulary) & (tl.load(row + token, token < vocabulary, other=0.0) == value)
        lowest = tl.minimum(lowest, tl.where(is_one, token, 0x7FFFFFFF))
    return tl.min(lowest, 0)


@triton.jit
def draw(row, vocabulary, maxima, top, temperature, top_k, top_p, min_p, u, list, BLOCK: tl.constexpr):
    """By inverse CDF among the ranks that top-k, top-p and min-p keep. They keep prefixes: the shortest one counts."""
    end = reach(maxima, vocabulary, top, temperature, WANTED)
    count = collect(row, vocabulary, top, temperature, 0, end, list, BLOCK)
    is_whole = end > LARGEST << TOKEN_BITS  # the list has all that have a mass
    is_cut = (top_k > 0) & (top_k < tl.where(is_whole, count, vocabulary))
    token, kept = tl.full([], 0, tl.int32), tl.full([], 0, tl.int64)
    if not is_cut:
        kept = mass_of_likely(row, vocabulary, top, temperature, 0, BLOCK)
    for stage in range(3):
        target = tl.where(is_cut, top_k, 0).to(tl.int64)
        if stage == 1:
            share = tl.ceil(top_p.to(tl.float64) * kept.to(tl.float64)).to(tl.int64)
            target = tl.where(top_p < 1.0, tl.maximum(share, 1), 0)
        if stage == 2:
            if min_p > 0.0:
                least = (tl.minimum(min_p, 1.0) * MASS_OF_ONE).to(tl.int64)
                kept = tl.minimum(kept, mass_of_likely(row, vocabulary, top, temperature, least, BLOCK))
            target = (u.to(tl.float64) * kept.to(tl.float64)).to(tl.int64) + 1
        if target > 0:
            token, kept = find(row, vocabulary, top, temperature, target, stage == 0, count, end, list, BLOCK)
    return token


@triton.jit
def sample_kernel(
    samples,
    columns,
    logits,
    penalised,
    lists,
    out,
    logits_stride: tl.int64,
    history_width: tl.int64,
    vocabulary,
    BLOCK: tl.constexpr,
):
    """One sample. `lists` has room for two of each."""
    sample = tl.program_id(0)
    if sample < tl.load(samples.count):
        slot = tl.load(samples.slot + sample).to(tl.int64)
        as_it_is = logits + tl.load(samples.row + sample).to(tl.int64) * logits_stride
        _, _, _, has_penalty = penalties_of(columns, slot)
        row = tl.where(has_penalty, penalised + sample.to(tl.int64) * vocabulary, as_it_is)
        maxima, is_below = survey(row, vocabulary)
        top = tl.max(maxima, 0) + 0.0
        temperature, position = tl.load(columns.temperature + slot), tl.load(columns.length + slot)
        token = tl.full([], -1, tl.int32)
        if is_below & (top > float("-inf")):
            if temperature > 0.0:
                u = uniform(position, tl.load(columns.branch + slot), PURPOSE_TOKEN, tl.load(columns.seed + slot))
                top_k, top_p = tl.load(columns.top_k + slot), tl.load(columns.top_p + slot)
                min_p, list = tl.load(columns.min_p + slot), lists + sample.to(tl.int64) * (2 * LISTED)
                token = draw(row, vocabulary, maxima, top, temperature, top_k, top_p, min_p, u, list, BLOCK)
            else:
                token = first_of(row, vocabulary, top, BLOCK)
            if position < history_width:
                tl.store(columns.history + slot * history_width + position, token)
        tl.store(out + sample, token)
