"""A row of logits ranked: descending, ties by ascending token id. Nothing here sorts a vocabulary.

A token's distance is (largest logit - its logit) / temperature, so ranks are ascending distances; its key is the bits of the
distance, which order like distances since none is negative, then the token id. Its mass is exp(-distance) in units of 2^-44,
an integer: sums of masses are exact, whatever their order.

A list holds the tokens of a range of keys, in the order of their ids. The first list aims at the first ranks; nearly all
that is asked for lies there. For what does not, a range of keys is halved until it fits a list.

One program works on a row. Logits are float32 below infinity, tokens int32, keys, ranks (from 1) and masses int64.
"""

import triton
import triton.language as tl

TOKEN_BITS = tl.constexpr(18)
DISTANCE_BITS = tl.constexpr(31)
LISTED = tl.constexpr(1024)  # room of a list
LIST_BITS = tl.constexpr(10)
LANES = tl.constexpr(1024)  # shares of a row that have a maximum each
DEPTH = tl.constexpr(4)  # neighbours in a lane
WANTED = tl.constexpr(512)  # lanes that the first list reaches; some 700 tokens if they are spread evenly
INFINITY = tl.constexpr(0x7F800000)  # bits of distances
LARGEST = tl.constexpr(0x7F7FFFFF)
MASS_OF_ONE = tl.constexpr(17592186044416.0)  # 2^44
MASSLESS = tl.constexpr(0x41F80000)  # 31: who is that far away has no mass


@triton.jit
def survey(row, vocabulary):
    """The largest number in each lane of the row [LANES], and whether all logits are below infinity, none a NaN."""
    i = tl.arange(0, LANES)[:, None] * DEPTH + tl.arange(0, DEPTH)[None, :]
    maxima = tl.full([LANES, DEPTH], float("-inf"), tl.float32)
    is_below = tl.full([LANES, DEPTH], 1, tl.int32)
    for start in range(0, vocabulary, LANES * DEPTH):
        x = tl.load(row + start + i, start + i < vocabulary, other=float("-inf"))
        is_below &= (x < float("inf")).to(tl.int32)
        maxima = tl.where(x > maxima, x, maxima)
    return tl.max(maxima, 1), tl.min(tl.min(is_below, 1), 0) > 0


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
    return (tl.exp(-distance) * MASS_OF_ONE).to(tl.int64)


@triton.jit
def find_key(keys, amounts, target, BITS: tl.constexpr):
    """The smallest of `keys` such that the amounts of all keys up to it reach the target, at least 1; of so many bits."""
    found, step = tl.full([], 0, tl.int64), tl.full([], 1, tl.int64) << (BITS - 1)
    for _ in range(BITS):
        if tl.sum(tl.where(keys < found + step, amounts, 0), 0) < target:
            found += step
        step >>= 1
    return found


@triton.jit
def reach(maxima, vocabulary, top, temperature, wanted):
    """The key where the first list ends: a row that fits is listed whole, else as far as so many lanes have a token."""
    end = tl.full([], INFINITY + 1, tl.int64) << TOKEN_BITS
    if vocabulary > LISTED:
        bits = bits_of(distances(maxima, top, temperature))
        furthest = find_key(bits, tl.full([LANES], 1, tl.int64), wanted, DISTANCE_BITS)
        end = (tl.minimum(furthest, LARGEST) + 1) << TOKEN_BITS
    return end


@triton.jit
def collect(row, vocabulary, top, temperature, first, end, list, BLOCK: tl.constexpr):
    """Lists the tokens of keys from `first` on, before `end`, and counts them; what finds no room is only counted."""
    count = tl.full([], 0, tl.int32)
    for start in range(0, vocabulary, BLOCK):
        token = start + tl.arange(0, BLOCK)
        distance = distances(tl.load(row + token, token < vocabulary, other=float("-inf")), top, temperature)
        key = bits_of(distance) << TOKEN_BITS | token
        is_one = ((token < vocabulary) & (key >= first) & (key < end)).to(tl.int32)
        place = count + tl.cumsum(is_one, 0) - 1
        tl.store(list + place, token, (is_one > 0) & (place < LISTED))
        count += tl.sum(is_one, 0)
    tl.debug_barrier()
    return count


@triton.jit
def mass_of_likely(row, vocabulary, top, temperature, least, BLOCK: tl.constexpr):
    """The mass of all tokens that have at least so much each."""
    total = tl.full([BLOCK], 0, tl.int64)
    for start in range(0, vocabulary, BLOCK):
        token = start + tl.arange(0, BLOCK)
        x = tl.load(row + token, token < vocabulary, other=float("-inf"))
        mass = masses(distances(x, top, temperature))
        total += tl.where(mass >= least, mass, 0)
    return tl.sum(total, 0)


@triton.jit
def ranked(row, top, temperature, list, count):
    """What a list holds: keys with the place in the list for the token, and masses; 0 past its end."""
    i = tl.arange(0, LISTED)
    token = tl.load(list + i, i < count, other=0)
    distance = distances(tl.load(row + token, i < count, other=float("-inf")), top, temperature)
    return bits_of(distance) << LIST_BITS | i, tl.where(i < count, masses(distance), 0)


@triton.jit
def below(row, vocabulary, top, temperature, end, BLOCK: tl.constexpr):
    """How many tokens have a key less than `end`, and the mass of those."""
    count, mass = tl.full([BLOCK], 0, tl.int32), tl.full([BLOCK], 0, tl.int64)
    for start in range(0, vocabulary, BLOCK):
        token = start + tl.arange(0, BLOCK)
        distance = distances(tl.load(row + token, token < vocabulary, other=float("-inf")), top, temperature)
        is_one = (token < vocabulary) & ((bits_of(distance) << TOKEN_BITS | token) < end)
        count += is_one.to(tl.int32)
        mass += tl.where(is_one, masses(distance), 0)
    return tl.sum(count, 0).to(tl.int64), tl.sum(mass, 0)


@triton.jit
def narrow(row, vocabulary, top, temperature, target, is_rank, first, rank, mass, BLOCK: tl.constexpr):
    """A range of keys that fits a list and holds the place where ranks, or masses, reach the target.

    It lies at `first` or behind; rank and mass are those of all before. Returns these three and the end of the range.
    """
    furthest = tl.where(is_rank, INFINITY, MASSLESS).to(tl.int64)
    end, upto = (furthest + 1) << TOKEN_BITS, vocabulary.to(tl.int64)
    while upto - rank > LISTED:
        middle = (first + end) >> 1
        rank_below, mass_below = below(row, vocabulary, top, temperature, middle, BLOCK)
        if tl.where(is_rank, rank_below, mass_below) < target:
            first, rank, mass = middle, rank_below, mass_below
        else:
            end, upto = middle, rank_below
    return first, rank, mass, end


@triton.jit
def find(row, vocabulary, top, temperature, target, is_rank, count, end, list, BLOCK: tl.constexpr):
    """The first token where ranks, or masses, reach the target, at least 1, and the mass of all up to it.

    `list` holds the `count` tokens of keys before `end`, if there is room; what else is needed is listed behind it.
    """
    keys, mass = ranked(row, top, temperature, list, count)
    first, rank, before = tl.full([], 0, tl.int64), tl.full([], 0, tl.int64), tl.full([], 0, tl.int64)
    listed, room = tl.sum(mass, 0), tl.full([], 0, tl.int32)
    if (count > LISTED) | (target > tl.where(is_rank, count, listed)):
        if count <= LISTED:
            first, rank, before = end, count.to(tl.int64), listed
        first, rank, before, end = narrow(
            row, vocabulary, top, temperature, target, is_rank, first, rank, before, BLOCK // 2
        )
        target -= tl.where(is_rank, rank, before)
        room += LISTED
        count = collect(row, vocabulary, top, temperature, first, end, list + room, BLOCK // 2)
        keys, mass = ranked(row, top, temperature, list + room, count)
    amounts = tl.where(is_rank, (tl.arange(0, LISTED) < count).to(tl.int64), mass)
    found = find_key(keys, amounts, target, DISTANCE_BITS + LIST_BITS)
    return tl.load(list + room + (found & (LISTED - 1))), before + tl.sum(tl.where(keys <= found, mass, 0), 0)
