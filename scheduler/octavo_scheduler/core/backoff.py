"""Against thrash: a sequence that comes back only to be preempted again was computed for nothing.

What was preempted comes back only into room for its known tokens and some growth. Besides, admission leaves a reserve of
pages alone. Each step that preempts adds what its victims held to the reserve; each step that does not takes a share of
it off. So admission backs off while preemptions are frequent, and the reserve is soon gone when they have ended. Neither
holds back a sequence that would run alone.
"""

from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.waiting import is_new
from octavo_scheduler.core.worker import Worker

QUIET_STEPS = 64
"""A reserve is halved in about 0.7 times so many steps without preemption."""


def growth(worker: Worker, sequence: Sequence) -> int:
    """Pages beyond those of its known tokens that one that comes back shall have room to grow into."""
    if is_new(sequence):
        return 0
    known = len(sequence.tokens)
    ahead = worker.settings.readmit_growth
    if sequence.max_tokens is not None:
        ahead = min(ahead, sequence.longest - 1 - known)
    return worker.num_pages(known + ahead) - worker.num_pages(known)


def margin(worker: Worker, sequence: Sequence) -> int:
    """Pages that have to stay free beyond its need, unless it would run alone."""
    return worker.reserve + growth(worker, sequence)


def reserve_after(worker: Worker, num_preempted_pages: int) -> int:
    """The worker's reserve in pages after a step in which victims gave up so many."""
    if num_preempted_pages:
        most = int(worker.device.num_usable * worker.settings.max_reserve_share)
        return min(worker.reserve + num_preempted_pages, most)
    return worker.reserve - -(-worker.reserve // QUIET_STEPS)
