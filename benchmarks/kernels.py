"""Single kernels of the C library against the machine's limits: `python -m benchmarks.kernels attention --variant amx`.

Every figure is the best of some rounds of a captured tape, so that Python costs nothing. JSON, one line a case.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from octavo_kernels import cpu
from octavo_kernels.cpu.library import variants
from octavo_kernels.ops import Ops

from benchmarks import attention

PARTS: dict[str, Callable[[Ops, bool], Iterator[dict[str, object]]]] = {"attention": attention.figures}


def read_rate(threads: int, size: int = 1 << 29) -> float:
    """Bytes per second that threads read together from arrays larger than their caches: a plain sum."""
    arrays = [np.ones(size // threads // 8, np.int64) for _ in range(threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(np.add.reduce, arrays))
            best = max(best, size / (time.perf_counter() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--variant", action="append", choices=variants(), help="default: all that this processor runs")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="the first model's shapes only")
    options = parser.parse_args()
    for variant in options.variant or variants():
        print(json.dumps({"variant": variant, "read_gb_s": round(read_rate(options.threads) / 1e9, 1)}), flush=True)
        for row in PARTS[options.part](cpu.build(True, options.threads, variant), options.quick):
            print(json.dumps({"variant": variant, **row}), flush=True)


if __name__ == "__main__":
    main()
