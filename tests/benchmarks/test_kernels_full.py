"""In what order every case of every Triton kernel is run."""

from itertools import chain

from benchmarks.kernels_full import all_cases, blocks
from tests.kernels.triton import cases as attention


def test_every_case_is_run_once_and_a_cache_written_once() -> None:
    cases = all_cases()
    found = blocks(list(cases.items()))
    assert sorted(name for name, _ in chain.from_iterable(found)) == sorted(cases)
    caches = [{attention.cache_of(case) for _, case in block if isinstance(case, attention.Case)} for block in found]
    assert all(len(each) <= 1 for each in caches)
    assert len(set(chain.from_iterable(caches))) == sum(map(len, caches))
