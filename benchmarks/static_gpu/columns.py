"""All kernels on all targets, a process a target."""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context

from triton.runtime import driver

from benchmarks.static_gpu.launches import Named, launches
from benchmarks.static_gpu.measure import measure
from benchmarks.static_gpu.table import Entry, Table
from benchmarks.static_gpu.targets import TARGETS, Driver


def entry(named: Named, target_index: int) -> Entry:
    """Of one kernel on one target; an error counts as all numbers missing."""
    target = TARGETS[target_index]
    if "fp8" in named.name and not target.has_fp8 and named.launch.needs_fp8:
        return {"has_type": False}
    try:
        return asdict(measure(named.launch, target))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}


def column(index: int) -> dict[str, Entry]:
    """All kernels on one target, in a process of its own. Wrappers ask which GPU is there."""
    driver.set_active(Driver(TARGETS[index]))
    return {named.name: entry(named, index) for named in launches()}


def measured() -> Table:
    """All kernels on all targets, two targets at a time."""
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(TARGETS)), mp_context=get_context("spawn")) as pool:
        columns = list(pool.map(column, range(len(TARGETS))))
    names = columns[0].keys()
    return {name: {target.name: each[name] for target, each in zip(TARGETS, columns, strict=True)} for name in names}
