"""The laws of one pool: what must hold of its pages at every moment, recomputed from tables and lists, not from counters.

A page's references are the block tables that name it. A page without any is free, cached or fenced, once; one with any is
held. A quarantined page is out of use and breaks no law, whoever still reads it.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from operator import not_

from octavo_scheduler.core.pages import NULL_PAGE, PagePool
from octavo_scheduler.core.worker import Worker

Table = Sequence[int]


def device_tables(worker: Worker) -> list[Table]:
    """Everything that holds references to device pages."""
    return [sequence.table for sequence in worker.running]


def host_tables(worker: Worker) -> list[Table]:
    """Everything that holds references to host pages."""
    return [sequence.host_table for sequence in worker.swapped]


def references(pool: PagePool, tables: Sequence[Table]) -> list[int]:
    """How many tables name each page, page 0 included; what is no page of the pool counts as page 0."""
    named = list(chain.from_iterable(tables))
    if named and (min(named) < 0 or max(named) > pool.total):
        named = [page if 0 <= page <= pool.total else NULL_PAGE for page in named]
    column = [0] * (pool.total + 1)
    for page in named:
        column[page] += 1
    return column


def broken_pages(pool: PagePool, named: list[int], in_flight: Collection[int]) -> Iterator[tuple[int, str]]:
    """Pages that break a law, with a sentence; page 0 where no page of this pool is to blame.

    `named`: references; `in_flight`: steps that were sent and not answered. Compares whole columns at once, since mostly
    all is well: 10,000 pages take about a millisecond.
    """
    if named[NULL_PAGE]:
        yield NULL_PAGE, "a table names the null page, or none of this pool"
    if named != pool.refs:
        for page in range(1, pool.total + 1):
            if pool.refs[page] != named[page]:
                yield page, f"page {page} counts {pool.refs[page]} references and has {named[page]}"
    for page in () if pool.findable.isdisjoint(pool.free) else sorted(pool.findable & set(pool.free)):
        yield page, f"page {page} is free and can be found"
    resting = [0] * (pool.total + 1)
    for page in chain(pool.free, pool.cached, pool.kept, pool.quarantined, *pool.fenced.values()):
        resting[page] += 1
    due = list(map(not_, named))
    for page in pool.quarantined:
        due[page] = True
    due[NULL_PAGE] = False
    if due != resting:
        for page in range(1, pool.total + 1):
            if due[page] != resting[page]:
                yield page, f"page {page} with {named[page]} references rests in {resting[page]} places"
    for step, fenced in pool.fenced.items():
        if step not in in_flight:
            for page in fenced:
                yield page, f"page {page} is fenced for step {step}, which is not in flight"


def broken_counts(pool: PagePool, named: list[int]) -> Iterator[str]:
    """Numbers counted along the way that differ from what there is."""
    num_named = len(named) - named.count(0)
    held = num_named - sum(named[page] > 0 for page in (NULL_PAGE, *pool.quarantined))
    if held != pool.num_held:
        yield f"{pool.num_held} held pages are counted, and there are {held}"
    if pool.num_extra_refs != sum(named) - num_named:
        yield f"{pool.num_extra_refs} references beyond the first are counted, and there are {sum(named) - num_named}"
    if pool.num_free + pool.num_cached + pool.num_held + pool.num_fenced + len(pool.quarantined) != pool.total:
        yield f"the pages do not add up to {pool.total}"
