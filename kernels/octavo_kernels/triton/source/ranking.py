"""A row of logits ranked: descending, ties by ascending token id. Nothing here sorts a vocabulary.

A token's distance is (largest logit - its logit) / temperature, so ranks are ascending distances; its key is the bits of the
distance, which order like distances since none is negative, then the token id. Its mass is exp(-distance) in units of 2^-44,
an integer: sums of masses are exact, whatever their order.

A list holds the tokens of a range of keys, in the order of their ids. The first list aims at the first ranks; nearly all that
is asked for lies there. For what does not, the range of keys is narrowed, digit by digit of the key, until it fits a list.

One program works on a row. Logits are float32 below infinity, tokens int32, keys, ranks (from 1) and masses int64.
"""

import triton
import triton.language as tl

TOKEN_BITS = tl.constexpr(18)
DISTANCE_BITS = tl.constexpr(31)
KEY_BITS = tl.constexpr(50)  # a multiple of DIGIT
DIGIT = tl.constexpr(2)  # bits that a pass over the row decides
DIGITS = tl.constexpr(4)
LISTED = tl.constexpr(1024)  # room of a list
LIST_BITS = tl.constexpr(10)
LIST_DIGIT = tl.constexpr(3)
LIST_DIGITS = tl.constexpr(8)
LANES = tl.constexpr(1024)  # shares of a row that have a maximum each
DEPTH = tl.constexpr(4)  # neighbours in a lane
WANTED = tl.constexpr(512)  # lanes that the first list reaches; some 700 tokens if they are spread evenly
LARGEST_FINITE = tl.constexpr(0x7F7FFFFF)


@triton.jit
def survey(row, vocabulary):
    """The largest logit of each lane [LANES], and whether all logits of the row are below infinity, so none a NaN."""
    i = tl.arange(0, LANES)[:, None] * DEPTH + tl.arange(0, DEPTH)[None, :]
    maxima = tl.full([LANES], float("-inf"), tl.float32)
    is_below = tl.full([LANES, DEPTH], 1, tl.int32)
    for start in range(0, vocabulary, LANES * DEPTH):
        x = tl.load(row + start + i, start + i < vocabulary, other=float("-inf"))
        is_below &= (x < float("inf")).to(tl.int32)
        maxima = tl.maximum(maxima, tl.max(x, 1))
    return maxima, tl.min(tl.min(is_below, 1), 0) > 0


@triton.jit
def distances(logits, top, temperature):
    """Rounded as a division is, so that the same logits tie everywhere."""
    return tl.div_rn(top - logits, tl.zeros_like(logits) + temperature)


@triton.jit
def bits_of(distance):
    """int64, in the order of distances; -0 is 0."""
    return (distance.to(tl.int32, bitcast=True) & 0x7FFFFFFF).to(tl.int64)


@triton.jit
def masses(distance):
    return (tl.exp(-distance) * 17592186044416.0).to(tl.int64)  # 2^44


@triton.jit
def find_key(keys, amounts, target, BITS: tl.constexpr):
    """The smallest of `keys` such that the amounts of all keys up to it reach the target, at least 1; of so many bits."""
    digits = tl.arange(0, LIST_DIGITS).to(tl.int64) + 1
    steps: tl.constexpr = (BITS + LIST_DIGIT - 1) // LIST_DIGIT
    found = tl.full([], 0, tl.int64)
    for i in range(steps):
        shift = (steps - 1 - i) * LIST_DIGIT
        bounds = found + (digits << shift)
        below = tl.sum(tl.where(keys[:, None] < bounds[None, :], amounts[:, None], 0), 0)
        found += tl.sum((below < target).to(tl.int64), 0) << shift
    return found


@triton.jit
def reach(maxima, vocabulary, top, temperature, wanted):
    """The key where the first list ends: a row that fits is listed whole, else as far as so many lanes have a token."""
    end = tl.full([], 1, tl.int64) << KEY_BITS
    if vocabulary > LISTED:
        bits = bits_of(distances(maxima, top, temperature))
        furthest = find_key(bits, tl.full([LANES], 1, tl.int64), wanted, DISTANCE_BITS)
        end = (tl.minimum(furthest, LARGEST_FINITE) + 1) << TOKEN_BITS
    return end


@triton.jit
def collect(row, vocabulary, top, temperature, first, end, least, list, BLOCK: tl.constexpr):
    """Lists the tokens of keys from `first` on, before `end`; what finds no room is only counted.

    Returns how many there are, their mass, that of all tokens which have `least` each, and that of the row.
    """
    i = tl.arange(0, BLOCK)
    count = tl.full([], 0, tl.int32)
    listed, likely, total = tl.zeros([BLOCK], tl.int64), tl.zeros([BLOCK], tl.int64), tl.zeros([BLOCK], tl.int64)
    for start in range(0, vocabulary, BLOCK):
        token = start + i
        distance = distances(tl.load(row + token, token < vocabulary, other=float("-inf")), top, temperature)
        mass, key = masses(distance), bits_of(distance) << TOKEN_BITS | token
        is_one = (token < vocabulary) & (key >= first) & (key < end)
        place = count + tl.cumsum(is_one.to(tl.int32), 0) - 1
        tl.store(list + place, token, is_one & (place < LISTED))
        count += tl.sum(is_one.to(tl.int32), 0)
        listed += tl.where(is_one, mass, 0)
        likely += tl.where(mass >= least, mass, 0)
        total += mass
    return count, tl.sum(listed, 0), tl.sum(likely, 0), tl.sum(total, 0)


@triton.jit
def pick(values, index):
    """values[index]; 0 before the first."""
    i = tl.arange(0, DIGITS)
    return tl.sum(tl.where(i == index, values, 0), 0)


@triton.jit
def below(row, vocabulary, top, temperature, bounds, BLOCK: tl.constexpr):
    """How many tokens have a key less than each bound, and the mass of those."""
    i = tl.arange(0, BLOCK)
    ranks, mass_below = tl.zeros_like(bounds), tl.zeros_like(bounds)
    for start in range(0, vocabulary, BLOCK):
        token = start + i
        distance = distances(tl.load(row + token, token < vocabulary, other=float("-inf")), top, temperature)
        key = bits_of(distance) << TOKEN_BITS | token
        is_below = (token < vocabulary)[:, None] & (key[:, None] < bounds[None, :])
        ranks += tl.sum(is_below.to(tl.int64), 0)
        mass_below += tl.sum(tl.where(is_below, masses(distance)[:, None], 0), 0)
    return ranks, mass_below


@triton.jit
def narrow(row, vocabulary, top, temperature, target, is_rank, BLOCK: tl.constexpr):
    """A range of keys that fits a list and holds the place where ranks, or masses, reach the target.

    Returns its first key, its end, and rank and mass of all before it.
    """
    digits = tl.arange(0, DIGITS).to(tl.int64) + 1
    first, rank, mass = tl.full([], 0, tl.int64), tl.full([], 0, tl.int64), tl.full([], 0, tl.int64)
    shift, count = tl.full([], KEY_BITS, tl.int64), tl.full([], LISTED + 1, tl.int64)
    while count > LISTED:
        shift -= DIGIT
        ranks, mass_below = below(row, vocabulary, top, temperature, first + (digits << shift), BLOCK)
        digit = tl.sum((tl.where(is_rank, ranks, mass_below) < target).to(tl.int32), 0)
        first += digit.to(tl.int64) << shift
        if digit > 0:
            rank, mass = pick(ranks, digit - 1), pick(mass_below, digit - 1)
        count = pick(ranks, digit) - rank
    return first, first + (tl.full([], 1, tl.int64) << shift), rank, mass


@triton.jit
def find(row, vocabulary, top, temperature, target, is_rank, count, mass, list, BLOCK: tl.constexpr):
    """The first token where ranks, or masses, reach the target, at least 1, and the mass of all up to it.

    `list` holds the first `count` tokens, which have this mass; what does not lie there is listed behind it.
    """
    before = tl.full([], 0, tl.int64)
    if target > tl.where(count > LISTED, 0, tl.where(is_rank, count, mass)):
        first, end, rank, before = narrow(row, vocabulary, top, temperature, target, is_rank, BLOCK)
        target -= tl.where(is_rank, rank, before)
        list += LISTED
        count, _, _, _ = collect(row, vocabulary, top, temperature, first, end, 0, list, BLOCK)
        tl.debug_barrier()
    i = tl.arange(0, LISTED)
    token = tl.load(list + i, i < count, other=0)
    distance = distances(tl.load(row + token, i < count, other=float("-inf")), top, temperature)
    keys, mass_of_one = bits_of(distance) << LIST_BITS | i, tl.where(i < count, masses(distance), 0)
    found = find_key(keys, tl.where(is_rank, (i < count).to(tl.int64), mass_of_one), target, DISTANCE_BITS + LIST_BITS)
    upto = before + tl.sum(tl.where(keys <= found, mass_of_one, 0), 0)
    return tl.load(list + (found & (LISTED - 1))), upto
