"""What every page of a worker is doing, for an operator to look at. Asks only.

The map is long and mostly made of runs of equal pages, which is how it travels.
"""

from collections.abc import Iterable
from enum import Enum, auto
from itertools import groupby

from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.worker import Worker


class Tier(Enum):
    DEVICE = auto()
    HOST = auto()


class PageState(Enum):
    """The later one counts where two fit: a swap in flight may name a page that somebody else has taken since."""

    FREE = auto()
    CACHED = auto()
    HELD = auto()
    SHARED = auto()
    FENCED = auto()
    SWAPPING = auto()
    QUARANTINED = auto()


def page_states(worker: Worker, tier: Tier) -> list[PageState]:
    """The state of every page, from page 1 on."""
    pool = worker.device if tier is Tier.DEVICE else worker.host
    states = [(PageState.FREE, PageState.HELD, PageState.SHARED)[min(refs, 2)] for refs in pool.refs]
    marked = (
        (PageState.CACHED, (*pool.cached, *pool.kept)),
        *((PageState.FENCED, pages) for pages in pool.fenced.values()),
        (PageState.SWAPPING, _swapping(worker, tier)),
        (PageState.QUARANTINED, pool.quarantined),
    )
    for state, pages in marked:
        for page in pages:
            states[page] = state
    return states[1:]


def runs(states: Iterable[PageState]) -> list[tuple[PageState, int]]:
    """The same, run-length encoded: (state, how many pages in a row)."""
    return [(state, sum(1 for _ in run)) for state, run in groupby(states)]


def holders(worker: Worker, tier: Tier) -> list[tuple[Sequence, list[int]]]:
    """The sequences that hold pages of this tier, with their block tables, in order of policy."""
    if tier is Tier.DEVICE:
        return [(sequence, sequence.table) for sequence in worker.running if sequence.table]
    return [(sequence, sequence.host_table) for sequence in worker.swapped if sequence.host_table]


def _swapping(worker: Worker, tier: Tier) -> list[int]:
    """Pages that a swap of a plan in flight copies from or to."""
    end = 0 if tier is Tier.DEVICE else 1
    outs = [pair[end] for plan in worker.in_flight for pair in plan.swap_out]
    return outs + [pair[1 - end] for plan in worker.in_flight for pair in plan.swap_in]
