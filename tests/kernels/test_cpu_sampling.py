"""Sampling of the C kernels, in every variant of this processor, against the rule in float64 and against the reference."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from octavo_kernels import cpu
from octavo_kernels.cpu.library import variants
from octavo_kernels.ops import Ops, Sampling
from octavo_kernels.reference import sampling as reference

from tests.kernels.sampling_rule import Floats, Ruling, columns_of, draw, rule, tensors_of, uniform_of

ROUNDING = 1e-6
"""Of float32 sums: nearer to a boundary than this share of all mass, either side is right."""
Filters = tuple[tuple[str, float], ...]
FILTERS: list[Filters] = [
    (),
    (("top_k", 1),),
    (("top_k", 7),),
    (("top_k", 700),),
    (("top_k", 5000),),
    (("top_p", 1e-9),),
    (("top_p", 0.3),),
    (("top_p", 0.95),),
    (("min_p", 1),),
    (("min_p", 0.2),),
    (("min_p", 1e-4),),
    (("min_p", 1e-30),),
    (("top_k", 40), ("top_p", 0.8)),
    (("top_k", 600), ("top_p", 0.99), ("min_p", 0.001)),
]

pytestmark = pytest.mark.skipif(not cpu.is_built(), reason="the C kernels are not built here")


@pytest.fixture(params=variants())
def ops(request: pytest.FixtureRequest) -> Ops:
    return cpu.build(False, 2, request.param)


def normal(rows: int, vocabulary: int, spread: float = 1, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((rows, vocabulary), np.float32) * np.float32(spread)


def assert_drawn_by_rule(tokens: list[int], rulings: list[Ruling]) -> None:
    """A token may only differ where a decision was within rounding of its boundary, which is rare."""
    differ = [i for i, (token, ruling) in enumerate(zip(tokens, rulings, strict=True)) if token != ruling.token]
    assert all(rulings[i].margin < ROUNDING for i in differ), [(i, tokens[i], rulings[i]) for i in differ]
    assert len(differ) <= 1 + len(tokens) // 50


def ruled(logits: Floats, sampling: Sampling) -> list[Ruling]:
    return [rule(row, sampling, slot) for slot, row in enumerate(logits)]


@cache
def case(
    rows: int, vocabulary: int, spread: float, digits: int, filters: Filters
) -> tuple[Floats, Sampling, list[Ruling]]:
    """Logits with so many digits after the point (few: many ties), and what is to be drawn from them."""
    logits = normal(rows, vocabulary, spread).round(digits)
    sampling = columns_of(rows, temperature=0.8, seed=np.arange(rows) * 7919, length=12, **dict(filters))
    return logits, sampling, ruled(logits, sampling)


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("digits", [9, 1])
def test_draws_follow_the_rule(ops: Ops, digits: int, filters: Filters) -> None:
    for rows, vocabulary in ((40, 50), (40, 1000), (12, 9001), (4, 49152)):
        for spread in (0.5, 3.0):  # flat: ranks far beyond any list; steep: within it
            logits, sampling, rulings = case(rows, vocabulary, spread, digits, filters)
            assert_drawn_by_rule(draw(ops, logits, sampling), rulings)


@pytest.mark.parametrize("filters", [(), (("top_k", 200_000),), (("top_p", 0.999),), (("min_p", 1e-6),)])
def test_the_largest_vocabulary_may_be_kept_nearly_whole(ops: Ops, filters: Filters) -> None:
    logits, sampling, rulings = case(3, 1 << 18, 1, 9, filters)
    assert_drawn_by_rule(draw(ops, logits, sampling), rulings)


@pytest.mark.parametrize("vocabulary", [*range(1, 20), 255, 256, 257, 8191, 8192, 8193, 10_000])
def test_every_width_of_a_row_is_read_to_its_end(ops: Ops, vocabulary: int) -> None:
    logits = np.repeat(normal(1, vocabulary, seed=vocabulary), 4, axis=0)
    logits[1, -1] = logits.max() + 1
    sampling = columns_of(4, temperature=[0, 0, 1, 1], top_k=[0, 0, 0, 9000], seed=5)
    tokens = draw(ops, logits, sampling)
    assert tokens[:2] == [int(logits[0].argmax()), vocabulary - 1]
    assert_drawn_by_rule(tokens[2:], ruled(logits[2:], columns_of(2, temperature=1, top_k=[0, 9000], seed=5)))


@pytest.mark.parametrize("vocabulary", [200, 49152, 1 << 18])
def test_the_draw_among_equals_tells_the_generator(ops: Ops, vocabulary: int) -> None:
    logits = np.zeros((40, vocabulary), np.float32)
    logits[:, ::2] = -0.0
    rng = np.random.default_rng(0)
    seeds, branches = rng.integers(-(2**63), 2**63 - 1, 40), rng.integers(0, 16, 40)
    sampling = columns_of(40, temperature=1, seed=seeds, branch=branches, length=rng.integers(0, 1 << 20, 40))
    assert draw(ops, logits, sampling) == [math.floor(uniform_of(sampling, i) * vocabulary) for i in range(40)]


def test_ties_are_ranked_by_token_id(ops: Ops) -> None:
    for vocabulary in (50, 20_000):
        logits = np.zeros((200, vocabulary), np.float32)
        assert set(draw(ops, logits, columns_of(200, temperature=1, top_k=3, seed=np.arange(200)))) == {0, 1, 2}


def test_logits_that_differ_tie_where_their_distances_do_not(ops: Ops) -> None:
    vocabulary = 20_000
    logits = np.full((1, vocabulary), -50, np.float32)
    logits[0, 7] = 1  # the largest: from here 0 and 1e-9 are equally far
    logits[0, 2000:] = np.linspace(1e-9, 0, vocabulary - 2000)
    logits = logits.repeat(30, axis=0)
    sampling = columns_of(30, temperature=1, top_k=400, seed=np.arange(30))
    assert_drawn_by_rule(draw(ops, logits, sampling), ruled(logits, sampling))


def test_temperature_zero_takes_the_lowest_of_the_largest(ops: Ops) -> None:
    logits = np.full((3, 5000), -1, np.float32)
    logits[0, [17, 4000]] = 2
    logits[1, 0] = -math.inf
    logits[2, [3, 4999]] = 5
    assert draw(ops, logits, columns_of(3)) == [17, 1, 3]


@pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-30])
@pytest.mark.parametrize("filters", [{}, {"top_k": 5, "top_p": 0.5}, {"top_k": 9000}, {"min_p": 0.1}])
def test_a_tiny_temperature_takes_the_largest_like_zero(
    ops: Ops, temperature: float, filters: dict[str, float]
) -> None:
    logits = normal(20, 10_000, 20)
    logits[::2] -= 100  # all of a row below zero
    sampling = columns_of(20, temperature=temperature, seed=np.arange(20), **filters)
    assert draw(ops, logits, sampling) == logits.argmax(-1).tolist()


@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_k": 15_000}, {"top_p": 0.9}, {"min_p": 0.5}])
def test_minus_infinity_is_never_drawn(ops: Ops, filters: dict[str, float]) -> None:
    for vocabulary in (300, 20_000):
        logits = np.full((300, vocabulary), -math.inf, np.float32)
        logits[:, [17, 250]] = 1.5
        sampling = columns_of(300, temperature=np.where(np.arange(300) == 0, 0, 1), seed=np.arange(300), **filters)
        tokens = draw(ops, logits, sampling)
        assert tokens[0] == 17
        assert set(tokens) == {17, 250}


@pytest.mark.parametrize("vocabulary", [1, 15, 16, 17, 3000])
@pytest.mark.parametrize("logit", [math.inf, math.nan])
def test_a_wrong_logit_anywhere_in_the_row_gives_no_token(ops: Ops, logit: float, vocabulary: int) -> None:
    places = {0, vocabulary // 2, vocabulary - 1}
    logits = normal(2 * len(places) + 2, vocabulary)
    for i, place in enumerate(places):
        logits[2 * i : 2 * i + 2, place] = logit
    tokens = draw(ops, logits, columns_of(len(logits), temperature=np.arange(len(logits)) % 2))
    assert set(tokens[:-2]) == {-1}
    assert min(tokens[-2:]) >= 0, "the row behind it"


def test_a_row_of_minus_infinity_gives_no_token(ops: Ops) -> None:
    assert draw(ops, np.full((2, 3000), -math.inf, np.float32), columns_of(2, temperature=[0, 1])) == [-1, -1]


def test_frequencies_match_probabilities(ops: Ops) -> None:
    draws, logits = 20_000, np.array([1.0, 0.0, -1.0, 2.0, 0.5, -3.0], np.float32)
    sampling = columns_of(draws, temperature=1, seed=42, length=np.arange(draws))
    tokens = draw(ops, logits[None], sampling, rows=[0] * draws)
    expected = np.exp(logits) / np.exp(logits).sum() * draws
    assert ((np.bincount(tokens, minlength=6) - expected) ** 2 / expected).sum() < 20.5  # chi-square, 5 degrees, 0.001


def with_history(slots: int, vocabulary: int, **columns: object) -> Sampling:
    """Histories of few tokens said again and again; garbage past their ends."""
    rng = np.random.default_rng(9)
    history = rng.integers(0, min(vocabulary, 300), (slots, 900))
    length = rng.integers(1, 800, slots)
    history[np.arange(900) >= length[:, None]] = 2**31 - 1
    return columns_of(slots, history=history, length=length, num_prompt=length // 3, **columns)


def truth_after_penalties(logits: Floats, sampling: Sampling) -> Floats:
    penalised, tensors = torch.from_numpy(logits.copy()), tensors_of(sampling)
    reference.penalise(penalised, torch.arange(len(logits)), tensors)
    return penalised.numpy()


PENALTIES: dict[str, Callable[[int], dict[str, object]]] = {
    "repetition": lambda slots: {"repetition_penalty": np.linspace(0.5, 2, slots)},
    "presence": lambda slots: {"presence_penalty": np.linspace(-2, 2, slots)},
    "frequency": lambda slots: {"frequency_penalty": np.linspace(-0.2, 0.2, slots)},
    "all": lambda slots: {"repetition_penalty": 1.3, "presence_penalty": 0.3, "frequency_penalty": 0.1},
}


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("is_shared", [False, True])
def test_penalties_are_those_of_the_reference_to_the_bit(ops: Ops, penalty: str, is_shared: bool) -> None:
    slots, vocabulary = 40, 3000
    logits = normal(1 if is_shared else slots, vocabulary, 2)
    sampling = with_history(slots, vocabulary, **PENALTIES[penalty](slots))
    rows = [0] * slots if is_shared else list(range(slots))
    expected = truth_after_penalties(logits[rows], sampling)
    assert draw(ops, logits, sampling, rows=rows) == expected.argmax(-1).tolist()
    assert (expected != logits[rows]).any(axis=-1).sum() >= slots - 2
    # An argmax shows the largest only: take it away, and the next one shows.
    for _ in range(5):
        logits = logits[rows].copy() if is_shared else logits
        rows, is_shared = list(range(slots)), False
        logits[rows, expected.argmax(-1)] = -math.inf
        expected = truth_after_penalties(logits, sampling)
        assert draw(ops, logits, sampling) == expected.argmax(-1).tolist()


def test_penalties_come_before_everything_else(ops: Ops) -> None:
    logits = normal(30, 3000, 2)
    more = {"temperature": 0.9, "top_p": 0.9, "seed": np.arange(30)}
    sampling = with_history(30, 3000, repetition_penalty=1.5, presence_penalty=0.5, **more)
    assert_drawn_by_rule(draw(ops, logits, sampling), ruled(truth_after_penalties(logits, sampling), sampling))


def test_samples_of_one_row_do_not_see_each_others_penalties(ops: Ops) -> None:
    logits = np.array([[1.0, 0.9, 0.0]], np.float32)
    sampling = columns_of(3, history=[[0], [1], [0]], length=1, presence_penalty=[0.2, 0.2, 0])
    for _ in range(20):
        assert draw(ops, logits, sampling, rows=[0, 0, 0]) == [1, 0, 0]


def test_a_draw_depends_on_nothing_else_in_the_batch(ops: Ops) -> None:
    rows, vocabulary = 24, 9001
    logits = normal(rows, vocabulary, 1.5)
    columns: dict[str, object] = {
        "temperature": np.arange(rows) % 4 * 0.5,
        "top_p": np.where(np.arange(rows) % 3 == 0, 0.9, 1),
        "top_k": np.arange(rows) % 5 * 300,
        "presence_penalty": np.arange(rows) % 2 * 0.5,
    }
    sampling = with_history(rows, vocabulary, seed=np.arange(rows), **columns)
    together = draw(ops, logits, sampling)
    assert [draw(ops, logits, sampling, rows=[i], slots=[i])[0] for i in range(rows)] == together
    backwards = list(range(rows))[::-1]
    assert draw(ops, logits, sampling, rows=backwards, slots=backwards) == together[::-1]


def test_all_variants_and_thread_counts_draw_the_same() -> None:
    rows, vocabulary = 60, 9001
    logits = normal(rows, vocabulary, 1.5)
    sampling = with_history(
        rows, vocabulary, temperature=0.9, top_p=np.where(np.arange(rows) % 2, 0.9, 1), repetition_penalty=1.1
    )
    draws = [draw(cpu.build(False, n, name), logits, sampling) for name in variants() for n in (1, 3)]
    differ = [sum(a != b for a, b in zip(each, draws[0], strict=True)) for each in draws]
    assert max(differ) <= 1  # an exponential may round differently where a multiplication and an addition are one


def test_many_rows_are_drawn_as_the_reference_draws_them(ops: Ops) -> None:
    rows, vocabulary = 1500, 4000
    logits = normal(rows, vocabulary, 2)
    rng = np.random.default_rng(1)
    columns: dict[str, object] = {
        "temperature": rng.uniform(0.3, 1.5, rows),
        "top_p": rng.choice([1, 0.95, 0.5], rows),
        "top_k": rng.choice([0, 50, 2000], rows),
        "min_p": rng.choice([0, 0.02], rows),
        "seed": rng.integers(0, 2**62, rows),
        "length": rng.integers(0, 1, rows),
    }
    sampling = columns_of(rows, **columns)
    expected = torch.zeros(rows, dtype=torch.int32)
    reference.draw(torch.from_numpy(logits.copy()), torch.arange(rows), tensors_of(sampling), expected)
    drawn = draw(ops, logits, sampling)
    differ = [i for i in range(rows) if drawn[i] != int(expected[i])]
    assert all(rule(logits[i], sampling, i).margin < ROUNDING for i in differ)
    assert len(differ) <= 3


def test_a_vocabulary_that_no_thread_has_room_for_is_refused(ops: Ops) -> None:
    with pytest.raises(ValueError, match="262144"):
        draw(ops, np.zeros((1, (1 << 18) + 1), np.float32), columns_of(1))
