"""How a victim gives up its device pages: moved to the host tier (swap), or forgotten and computed again (drop).

Of the two the one predicted cheaper is taken: bytes in both directions ÷ copy rate, against tokens ÷ prefill rate.
"""

from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceMove
from octavo_scheduler.core.worker import Worker


def prefers_swap(worker: Worker, victim: Sequence) -> bool:
    """Whether swapping is the cheaper way (or the forced one)."""
    if worker.settings.preempt != "auto":
        return worker.settings.preempt == "swap"
    swap_seconds = 2 * len(victim.table) * worker.joined.page_bytes / worker.copy_rate
    return swap_seconds < victim.computed / worker.prefill_rate


def swap_out(worker: Worker, victim: Sequence, plan: StepPlan) -> bool:
    """Moves all pages of a running sequence without rows in flight to the host tier; False when that is full.

    The device pages are free at once: the plan copies them out before anything else is written.
    """
    host_pages = worker.host.take(len(victim.table))
    if host_pages is None:
        return False
    plan.swap_out += zip(victim.table, host_pages, strict=True)
    worker.device.give_back(victim.table)
    worker.running.discard(victim)
    worker.held_tokens -= victim.planned
    worker.give_up_slot(victim)
    victim.table = []
    victim.host_table = host_pages
    victim.last_step = plan.step
    victim.is_evicting = False
    victim.move(SequenceMove.SWAP_OUT)
    worker.swapped.add(victim)
    return True


def swap_in(worker: Worker, sequence: Sequence, plan: StepPlan) -> bool:
    """Moves all pages of a swapped sequence back; False when the device has too few.

    The host pages stay fenced until the plan is done: it copies out (into host pages) before it copies in.
    """
    device_pages = worker.device.take(len(sequence.host_table))
    if device_pages is None:
        return False
    plan.swap_in += zip(sequence.host_table, device_pages, strict=True)
    worker.host.give_back(sequence.host_table, until=plan.step)
    worker.swapped.discard(sequence)
    sequence.host_table = []
    sequence.table = device_pages
    sequence.last_step = plan.step
    sequence.move(SequenceMove.SWAP_IN)
    return True
