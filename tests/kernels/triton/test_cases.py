"""The list of all cases says what it promises."""

from collections import Counter
from itertools import product

from tests.kernels.triton.cases import CHOICES, WAYS, WAYS_EACH, all_cases


def test_every_kernel_is_among_all_cases_and_every_way_to_look_back_meets_every_choice_many_times() -> None:
    cases = [vars(case) for case in all_cases()]
    names = [name for name in CHOICES if name not in WAYS]
    kernels = Counter(tuple(case[name] for name in names) for case in cases)
    assert set(kernels) == set(product(*(CHOICES[name] for name in names)))
    assert min(kernels.values()) == WAYS_EACH
    for name in names:
        met = Counter((case[name], *(case[way] for way in WAYS)) for case in cases)
        assert set(met) == set(product(CHOICES[name], *(CHOICES[way] for way in WAYS)))
        assert min(met.values()) > 40
