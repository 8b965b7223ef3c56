"""The laws of one pool: what must hold of its pages at every moment, recomputed from tables and lists, not from counters.

A page's references are the block tables that name it. A page without any is free, cached or fenced, once; one with any is
held. A quarantined page is out of use and breaks no law, whoever still reads it.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, repeat
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


def references(tables: Sequence[Table]) -> Counter[int]:
    """How many tables name a page, for every page that is named."""
    return Counter(chain.from_iterable(tables))


def broken_pages(pool: PagePool, named: Counter[int], in_flight: Collection[int]) -> Iterator[tuple[int, str]]:
    """Pages that break a law, with a sentence; page 0 where no page of this pool is to blame.

    `named`: references; `in_flight`: steps that were sent and not answered. Compares whole columns at once, since mostly
    all is well: 10,000 pages take about a millisecond.
    """
    pages = range(pool.total + 1)
    column = list(map(named.get, pages, repeat(0)))
    for page in named.keys() - pages if sum(column) != named.total() else ():
        yield NULL_PAGE, f"a table names page {page} of {pool.total}"
    if column[NULL_PAGE]:
        yield NULL_PAGE, "a table names the null page"
        column[NULL_PAGE] = 0
    if column != pool.refs:
        for page in pages[1:]:
            if pool.refs[page] != column[page]:
                yield page, f"page {page} counts {pool.refs[page]} references and has {column[page]}"
    rests = Counter(chain(pool.free, pool.cached, pool.kept, pool.quarantined, *pool.fenced.values()))
    due = list(map(not_, column))
    due[NULL_PAGE] = False
    for page in pool.quarantined:
        due[page] = True
    resting = list(map(rests.get, pages, repeat(0)))
    if due != resting:
        for page in pages[1:]:
            if due[page] != resting[page]:
                yield page, f"page {page} with {column[page]} references rests in {resting[page]} places"
    for page in () if pool.findable.isdisjoint(pool.free) else sorted(pool.findable & set(pool.free)):
        yield page, f"page {page} is free and can be found"
    for step, fenced in pool.fenced.items():
        if step not in in_flight:
            for page in fenced:
                yield page, f"page {page} is fenced for step {step}, which is not in flight"


def broken_counts(pool: PagePool, named: Counter[int]) -> Iterator[str]:
    """Numbers counted along the way that differ from what there is."""
    held = sum(1 for page in named if page not in pool.quarantined and page != NULL_PAGE)
    if held != pool.num_held:
        yield f"{pool.num_held} held pages are counted, and there are {held}"
    if pool.num_extra_refs != named.total() - len(named):
        yield f"{pool.num_extra_refs} references beyond the first are counted, and there are {named.total() - len(named)}"
    if pool.num_free + pool.num_cached + pool.num_held + pool.num_fenced + len(pool.quarantined) != pool.total:
        yield f"the pages do not add up to {pool.total}"
