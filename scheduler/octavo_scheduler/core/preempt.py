"""How a victim gives up its device pages: moved to the host tier (swap), or forgotten and computed again (drop).

Of the two the one predicted cheaper is taken: bytes in both directions ÷ copy rate, against tokens ÷ prefill rate. Pages
whose content is on the host tier already need not go there.
"""

from octavo_scheduler.core.prefix import full_pages
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.worker import Worker


def prefers_swap(worker: Worker, victim: Sequence) -> bool:
    """Whether swapping is the cheaper way (or the forced one)."""
    if worker.settings.preempt != "auto":
        return worker.settings.preempt == "swap"
    num_there = sum(worker.host.find(content) is not None for content in full_pages(worker, victim, victim.computed))
    swap_seconds = (2 * len(victim.table) - num_there) * worker.joined.page_bytes / worker.copy_rate
    return swap_seconds < victim.computed / worker.prefill_rate
