"""The generator against the known answers published with Random123 (kat_vectors, philox4x32 10)."""

import pytest
import torch
from octavo_kernels.reference.philox import philox, uniform

KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def as_int64(unsigned: int) -> torch.Tensor:
    return torch.tensor([unsigned - (1 << 64) if unsigned >> 63 else unsigned])


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter: str, key: str, answer: str) -> None:
    low, high = words(key)
    c0, c1, c2, c3 = (torch.tensor([word]) for word in words(counter))
    result = philox((c0, c1, c2, c3), as_int64(high << 32 | low))
    assert [int(word) for word in result] == words(answer)


def test_uniform_is_the_upper_24_bits_of_the_first_word() -> None:
    zero = torch.zeros(1, dtype=torch.int32)
    assert float(uniform(zero, zero, 0, torch.zeros(1, dtype=torch.int64))) == (0x6627E8D5 >> 8) * 2.0**-24


def test_position_branch_purpose_and_seed_each_give_another_number() -> None:
    one, zero, key = torch.ones(1), torch.zeros(1), torch.tensor([7])
    draws = [
        uniform(zero, zero, 0, key),
        uniform(one, zero, 0, key),
        uniform(zero, one, 0, key),
        uniform(zero, zero, 1, key),
        uniform(zero, zero, 0, key + 1),
        uniform(zero, zero, 0, key + (1 << 40)),
    ]
    assert len({float(draw) for draw in draws}) == len(draws)


def test_many_draws_are_spread_evenly() -> None:
    count = 100_000
    u = uniform(torch.arange(count), torch.zeros(count), 0, torch.full((count,), 1234))
    histogram = torch.histc(u, bins=10, min=0, max=1)
    assert float(((histogram - count / 10) ** 2 / (count / 10)).sum()) < 27.9  # chi-square, 9 degrees, p = 0.001
