"""All laws, as one function: what must hold after every event. `ledger` has those of a pool."""

from collections.abc import Iterator

from octavo_scheduler.core.core import Core
from octavo_scheduler.core.ledger import Table, broken_counts, broken_pages, device_tables, host_tables, references
from octavo_scheduler.core.pages import PagePool
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import RequestState, SequenceState
from octavo_scheduler.core.waiting import Load, is_new
from octavo_scheduler.core.worker import Worker


def violations(core: Core) -> list[str]:
    """Every law that does not hold, one sentence each. Recomputed from tables and queues, not from counters."""
    found = [f"{w.id}: {law}" for w in core.workers.values() for law in _worker_violations(w)]
    found += _request_violations(core)
    return found


def _pool_violations(tier: str, pool: PagePool, tables: list[Table], in_flight: list[int]) -> Iterator[str]:
    named = references(pool, tables)
    laws = [law for _, law in broken_pages(pool, named, in_flight)]
    yield from (f"{tier}: {law}" for law in (*laws, *broken_counts(pool, named)))
    if pool.quarantined:
        yield f"{tier}: pages are quarantined: {sorted(pool.quarantined)}"


def _worker_violations(worker: Worker) -> Iterator[str]:
    running, swapped = list(worker.running), list(worker.swapped)
    in_flight = [plan.step for plan in worker.in_flight]
    yield from _pool_violations("device", worker.device, device_tables(worker), in_flight)
    yield from _pool_violations("host", worker.host, host_tables(worker), in_flight)
    slots = [s.slot for s in running]
    if len({*slots, *worker.free_slots}) != len(slots) + len(worker.free_slots):
        yield "a slot is held twice"
    if worker.held_tokens != sum(s.planned for s in running):
        yield f"held tokens are counted as {worker.held_tokens}"
    for sequence in running:
        yield from _running_violations(worker, sequence)
    for sequence in swapped:
        if sequence.state is not SequenceState.SWAPPED or sequence.table or sequence.rows_in_flight:
            yield "a swapped sequence holds device pages or rows"
        if len(sequence.host_table) * worker.page_size < sequence.computed:
            yield "a swapped sequence has fewer pages than tokens"
    if worker.filled_slots != _filled_slots(worker):
        yield f"{worker.filled_slots} token slots are counted as filled, and {_filled_slots(worker)} are"
    for plan in worker.in_flight:
        if sum(plan.row_tokens) > worker.budget or len(plan.row_slots) != len(set(plan.row_slots)):
            yield f"plan {plan.step} breaks its budget or names a slot twice"


def _running_violations(worker: Worker, sequence: Sequence) -> Iterator[str]:
    in_flight = [(n, samples) for p in worker.in_flight for s, n, samples in _rows(p) if s is sequence]
    if sequence.state is not SequenceState.RUNNING or sequence.worker is not worker or sequence.host_table:
        yield "a running sequence is in another state"
    if sequence.rows_in_flight != len(in_flight):
        yield "rows in flight are miscounted"
    if sequence.planned - sequence.computed != sum(n for n, _ in in_flight):
        yield "planned and computed tokens do not differ by what is in flight"
    if sequence.pending != sum(samples for _, samples in in_flight):
        yield "pending tokens are miscounted"
    if sequence.planned > len(sequence.tokens) + sequence.pending:
        yield "more tokens are planned than known"
    if sequence.scores_prompt and sequence.request.num_scored <= sequence.computed:
        yield "prompt tokens were computed and not scored"
    yield from _sharing_violations(worker, sequence)
    if len(sequence.table) != worker.num_pages(sequence.planned):
        yield f"{len(sequence.table)} pages hold {sequence.planned} tokens"


def _sharing_violations(worker: Worker, sequence: Sequence) -> Iterator[str]:
    """A page is shared when it is full, or by branches that wait for a copy of it; nobody writes it."""
    for number in range(sequence.computed // worker.page_size, len(sequence.table)):
        page = sequence.table[number]
        if worker.device.refs[page] == 1:
            continue
        holders = [s for s in worker.running if page in s.table]
        if any(s.request is not sequence.request for s in holders):
            yield "a page that is not yet computed is shared by others than branches"
        num_written = {min(s.planned - number * worker.page_size, worker.page_size) for s in holders}
        if len(num_written) > 1 or worker.shared_gaps.get(page, 0) != worker.page_size - max(num_written):
            yield "a branch writes a page that others share"


def _filled_slots(worker: Worker) -> int:
    """Counted page by page."""
    filled: dict[int, int] = {}
    for sequence in worker.running:
        for number, page in enumerate(sequence.table):
            filled[page] = min(worker.page_size, sequence.planned - number * worker.page_size)
    return sum(filled.values())


def _rows(plan: StepPlan) -> Iterator[tuple[Sequence, int, int]]:
    """Every sequence that a plan samples or computes, with the tokens computed and whether one is sampled for it."""
    forks = iter(plan.forks)
    for sequence, num_tokens, samples in zip(plan.rows, plan.row_tokens, plan.row_samples, strict=True):
        yield sequence, num_tokens, min(samples, 1)
        for _ in range(samples - 1):
            yield next(forks).sequence, num_tokens, 1


def _request_violations(core: Core) -> Iterator[str]:
    live = [s for r in core.requests.values() for s in r.sequences if s.state is not SequenceState.DONE]
    if any(all(s.state is SequenceState.DONE for s in request.sequences) for request in core.requests.values()):
        yield "a request outlived its last branch"
    queued = {id(s) for s in core.waiting}
    placed = {id(s) for w in core.workers.values() for s in (*w.running, *w.swapped)}
    if queued & placed or len(queued) + len(placed) != len(live):
        yield "live sequences are not each in exactly one queue"
    new = [s for s in core.waiting if is_new(s)]
    if core.waiting.queued != Load(len(new), sum(len(s.tokens) for s in new)):
        yield f"{core.waiting.queued} is counted as queued, and {len(new)} requests are"
    for sequence in live:
        if sequence.request.state is RequestState.ENDED:
            yield "a live sequence belongs to a request that ended"
        if (sequence.state is SequenceState.WAITING) != (id(sequence) in queued):
            yield "a waiting sequence is not in the waiting queue"
        if sequence.state is SequenceState.WAITING and (sequence.table or sequence.host_table or sequence.slot >= 0):
            yield "a waiting sequence holds pages or a slot"
        if sequence.max_tokens is not None and sequence.num_generated >= sequence.max_tokens:
            yield "a sequence outlived its last token"
