"""Pages on their way between a worker's device and its host tier. To whoever looks for a prefix the two are one space.

    device ──swap out, or evicted and moved down──► host        host ──swap in, or found and brought up──► device

A full page whose tokens the other tier holds already is shared there instead of moved. What a plan writes on a tier can be
found there once the plan is done (`StepPlan.arrivals`). A plan copies out before it copies in, and both before it writes.
"""

from collections.abc import Callable

from octavo_scheduler.core.pages import Content, PagePool
from octavo_scheduler.core.plan import Arrival, StepPlan
from octavo_scheduler.core.prefix import Hit, full_pages
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceMove
from octavo_scheduler.core.worker import Worker


def take(worker: Worker, count: int, plan: StepPlan) -> list[int] | None:
    """`count` device pages, or None. What is evicted for them moves down while the host tier has room."""
    evicted: list[tuple[int, Content]] = []
    pages = worker.device.take(count, evicted)
    for page, content in evicted:
        if worker.host.find(content) is None and (host_pages := worker.host.take(1)) is not None:
            plan.swap_out.append((page, host_pages[0]))
            plan.arrivals.append(Arrival(worker.host, host_pages[0], content))
            worker.host.give_back(host_pages, until=plan.step)
    return pages


def bring_up(worker: Worker, hits: list[Hit], plan: StepPlan) -> list[int]:
    """A block table with a reference for each hit of a prefix; those on the host tier are copied. There must be room."""
    for hit in hits:
        hit.pool.share([hit.page])  # before anything is taken, which might evict what was found
    table: list[int] = []
    for hit in hits:
        if hit.pool is worker.device:
            table.append(hit.page)
            continue
        pages = take(worker, 1, plan)
        assert pages is not None, "admission checks room before it starts a sequence"
        plan.swap_in.append((hit.page, pages[0]))
        plan.arrivals.append(Arrival(worker.device, pages[0], hit.content))
        worker.host.give_back([hit.page], until=plan.step)
        table += pages
    return table


def swap_out(worker: Worker, victim: Sequence, plan: StepPlan) -> bool:
    """Moves a running sequence without rows in flight to the host tier; False when that has no room.

    The device pages are free at once: the plan copies them out before anything else is written.
    """
    landed = _land(worker, victim, victim.table, worker.host, worker.host.take, plan)
    if landed is None:
        return False
    victim.host_table, moves = landed
    plan.swap_out += moves
    worker.device.give_back(victim.table)
    worker.running.discard(victim)
    worker.held_tokens -= victim.planned
    worker.give_up_slot(victim)
    victim.table = []
    if moves:  # else the plan does not name it, and may have nothing to say at all
        victim.last_step = plan.step
    victim.is_evicting = False
    victim.move(SequenceMove.SWAP_OUT)
    worker.swapped.add(victim)
    return True


def swap_in(worker: Worker, sequence: Sequence, plan: StepPlan) -> bool:
    """Moves a swapped sequence back; False when the device has no room.

    The host pages stay fenced until the plan is done: it copies out (into host pages) before it copies in.
    """
    landed = _land(worker, sequence, sequence.host_table, worker.device, lambda count: take(worker, count, plan), plan)
    if landed is None:
        return False
    sequence.table, moves = landed
    plan.swap_in += moves
    worker.host.give_back(sequence.host_table, until=plan.step)
    worker.swapped.discard(sequence)
    sequence.host_table = []
    sequence.last_step = plan.step
    sequence.move(SequenceMove.SWAP_IN)
    return True


def _land(
    worker: Worker,
    sequence: Sequence,
    source: list[int],
    pool: PagePool,
    take_pages: Callable[[int], list[int] | None],
    plan: StepPlan,
) -> tuple[list[int], list[tuple[int, int]]] | None:
    """A table on `pool` for all of a sequence's pages, and the moves that fill it; None when there is no room."""
    known = full_pages(worker, sequence, sequence.computed)
    found = {number: page for number, content in enumerate(known) if (page := pool.find(content)) is not None}
    pool.share(list(found.values()))
    taken = take_pages(len(source) - len(found))
    if taken is None:
        pool.give_back(list(found.values()))
        return None
    table: list[int] = []
    moves: list[tuple[int, int]] = []
    rest = iter(taken)
    for number, page in enumerate(source):
        if number in found:
            table.append(found[number])
            continue
        table.append(next(rest))
        moves.append((page, table[-1]))
        if number < len(known):
            plan.arrivals.append(Arrival(pool, table[-1], known[number]))
    return table, moves
