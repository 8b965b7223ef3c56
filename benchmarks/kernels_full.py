"""Every case of every Triton kernel, in the interpreter, against float64.

    python -m benchmarks.kernels_full                 all that is left to do: hours on two cores
    python -m benchmarks.kernels_full --seconds 600   as many as that lasts

Cases come in random order and are remembered until a source changes. Prints one line of JSON: how many there are, were run
and failed, and the worst relative error by kernel and type of activations.
"""

import argparse
import gc
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, islice
from multiprocessing import get_context
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when kernels are defined

from benchmarks.store import ROOT, Store, digest
from tests.kernels.triton import cases as attention
from tests.kernels.triton import linear_cases, sampling_cases
from tests.kernels.triton.test_sampling import ROUNDING

AT_ONCE = 16
COLLECTED_AFTER = 200_000, 20, 20
"""Objects: the interpreter makes many small ones, and looking through them all the time takes a fifth of the time."""
SOURCES = ("kernels/octavo_kernels", "tests/kernels")
"""What the results depend on: they hold while schedulers, workers and clients change."""
Named = tuple[str, Any]
Result = tuple[str, float, bool]  # (type of activations, error, whether it is too large)


def all_cases() -> dict[str, Any]:
    """By name."""
    found = chain(attention.all_cases(), linear_cases.all_cases(), sampling_cases.all_cases())
    return {f"{type(case).__module__.rpartition('.')[2]} {case!r}": case for case in found}


def run(case: Any) -> Result:
    """One of them."""
    if isinstance(case, attention.Case):
        error = attention.check(case)
        return f"attention {case.dtype}", error, not error <= attention.BOUND[case.dtype]
    if isinstance(case, linear_cases.Case):
        error = linear_cases.check(case)
        return f"linear {case.dtype}", error, not error <= case.bound
    error = sampling_cases.check(case)
    return "sampling float32", error, not error <= ROUNDING


def checked(block: list[Named]) -> list[tuple[str, Result]]:
    """One after the other, with their names; what one raises counts as a failure."""
    return [(name, outcome(name, case)) for name, case in block]


def outcome(name: str, case: Any) -> Result:
    try:
        return run(case)
    except Exception as error:
        return f"{name}: {error!r}", float("inf"), True


def blocks(cases: list[Named]) -> list[list[Named]]:
    """In random order. Those of paged attention that read the same cache are together: to write it takes as long as to read
    it once."""
    by_cache = defaultdict[object, list[Named]](list)
    for name, case in cases:
        by_cache[attention.cache_of(case) if isinstance(case, attention.Case) else name].append((name, case))
    found = list(by_cache.values())
    random.Random(len(cases)).shuffle(found)
    return found


def results(cases: dict[str, Any], store: Store, seconds: float) -> Iterator[Result]:
    """What is known, and what can be found out in so many seconds."""
    yield from (entry["result"] for entry in store.entries.values())
    rest = iter(blocks([(name, case) for name, case in cases.items() if name not in store.entries]))
    until = time.monotonic() + seconds
    with ProcessPoolExecutor(
        os.cpu_count(), get_context("spawn"), initializer=gc.set_threshold, initargs=COLLECTED_AFTER
    ) as pool:
        while time.monotonic() < until and (batch := list(islice(rest, AT_ONCE))):
            for name, result in chain.from_iterable(pool.map(checked, batch)):
                store.get(name, partial(dict, result=result))
                yield result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    cases = all_cases()
    store = Store(ROOT / ".cache" / f"kernels-full-{digest(folders=SOURCES)}.jsonl")
    num_run, num_failed, worst = 0, 0, dict[str, float]()
    for kind, error, is_bad in results(cases, store, parser.parse_args().seconds):
        num_run, num_failed = num_run + 1, num_failed + is_bad
        worst[kind] = max(worst.get(kind, 0.0), error)
    print(json.dumps({"cases": len(cases), "run": num_run, "failed": num_failed, "worst_relative_error": worst}))


if __name__ == "__main__":
    main()
