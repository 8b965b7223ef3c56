"""The laws of conservation, for one worker or one request at a time, quickly: after every event only what it touched.

Written independently of the core's own auditor, which runs over everything now and then.
"""

from collections.abc import Iterator
from itertools import chain

from octavo_scheduler.core import Core
from octavo_scheduler.core.pages import PagePool
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import Request, Sequence
from octavo_scheduler.core.states import RequestState, SequenceState
from octavo_scheduler.core.worker import Worker

NO_SLOT = -1
RUNNING, SWAPPED, WAITING, DONE = (
    SequenceState.RUNNING,
    SequenceState.SWAPPED,
    SequenceState.WAITING,
    SequenceState.DONE,
)


def broken_by_pool(name: str, pool: PagePool, tables: list[list[int]]) -> Iterator[str]:
    """I1, I2, I3, and that no page is findable and free, or cached and not findable."""
    refs = [0] * (pool.total + 1)
    for page in chain.from_iterable(tables):
        refs[page] += 1
    if refs[0]:
        yield f"a table of the {name} pool names the null page"
    if refs != pool.refs:
        wrong = [(page, pool.refs[page], n) for page, n in enumerate(refs) if pool.refs[page] != n]
        yield f"{name} pages (page, counted, real references): {wrong}"
    held = [page for page, count in enumerate(refs) if count]
    resting = [*pool.free, *pool.cached, *pool.kept, *chain.from_iterable(pool.fenced.values())]
    if sorted(resting + held) != list(range(1, pool.total + 1)):
        yield f"{name} pages are not each once held, free, cached or fenced: held {held}, resting {sorted(resting)}"
    if pool.quarantined:
        yield f"{name} pages are quarantined: {sorted(pool.quarantined)}"
    if pool.num_held != len(held) or pool.num_extra_refs != sum(refs) - len(held):
        yield f"the {name} pool counts {pool.num_held} held pages and {pool.num_extra_refs} more references"
    content = pool._content
    if not (content.keys().isdisjoint(pool.free) and content.keys() >= {*pool.cached, *pool.kept}):
        yield f"free {name} pages can be found, or cached ones cannot"
    if pool._pinned and (pool.cached or pool.kept):
        if any(content[page].key in pool._pinned for page in pool.cached):
            yield f"pinned {name} pages are the next to be evicted"
        if not all(content[page].key in pool._pinned for page in pool.kept):
            yield f"{name} pages are kept that are not pinned"
    if pool._page_of != {each.key: page for page, each in content.items()}:
        yield f"the {name} pool finds pages under keys that are not theirs"


def broken_by_worker(worker: Worker) -> Iterator[str]:
    running, swapped = worker.running, worker.swapped
    yield from broken_by_pool("device", worker.device, [s.table for s in running])
    yield from broken_by_pool("host", worker.host, [s.host_table for s in swapped])
    slots = [s.slot for s in running]
    if sorted(slots + worker.free_slots) != list(range(len(slots) + len(worker.free_slots))):
        yield "slots are not each once held or free"
    steps = [plan.step for plan in worker.in_flight]
    if (
        steps != list(range(worker.step - len(steps) + 1, worker.step + 1))
        or len(steps) > worker.settings.plans_in_flight
    ):
        yield f"steps {steps} are in flight after step {worker.step}"
    if not steps and (worker.device.fenced or worker.host.fenced):
        yield "pages are fenced although nothing is in flight"
    if any(step not in steps for step in (*worker.device.fenced, *worker.host.fenced)):
        yield "pages are fenced for a step that is not in flight"
    in_flight: dict[Sequence, list[int]] = {}
    for plan in worker.in_flight:
        for sequence, tokens, samples in rows_of(plan):
            row = in_flight.setdefault(sequence, [0, 0, 0])
            row[0] += 1
            row[1] += tokens
            row[2] += samples
    for sequence in running:
        yield from broken_by_running(worker, sequence, *in_flight.get(sequence, (0, 0, 0)))
    for sequence in swapped:
        if sequence.state is not SWAPPED or sequence.worker is not worker or sequence.table or sequence.slot != NO_SLOT:
            yield "a swapped sequence holds device pages or a slot"
        if sequence.rows_in_flight or sequence.planned != sequence.computed:
            yield "a swapped sequence has rows in flight"
        if len(sequence.host_table) != worker.num_pages(sequence.computed):
            yield f"{len(sequence.host_table)} host pages keep {sequence.computed} tokens"
    filled: dict[int, int] = {}
    for sequence in running:
        filled.update(dict.fromkeys(sequence.table, worker.page_size))
        if sequence.table:
            filled[sequence.table[-1]] = sequence.planned - (len(sequence.table) - 1) * worker.page_size
    if worker.filled_slots != sum(filled.values()):
        yield f"{worker.filled_slots} token slots are counted as filled, {sum(filled.values())} are"


def rows_of(plan: StepPlan) -> Iterator[tuple[Sequence, int, bool]]:
    """Each sequence that a row computes, its forks too: tokens, and whether one is sampled for it."""
    forks = iter(plan.forks)
    for sequence, tokens, samples in zip(plan.rows, plan.row_tokens, plan.row_samples, strict=True):
        yield sequence, tokens, samples > 0
        for _ in range(samples - 1):
            yield next(forks).sequence, tokens, True


def broken_by_running(worker: Worker, sequence: Sequence, rows: int, tokens: int, samples: int) -> Iterator[str]:
    if sequence.state is not RUNNING or sequence.worker is not worker or sequence.host_table:
        yield "a running sequence is in another state"
    if (sequence.rows_in_flight, sequence.planned - sequence.computed, sequence.pending) != (rows, tokens, samples):
        yield (
            f"{rows} rows with {tokens} tokens and {samples} samples are in flight, counted as {sequence.rows_in_flight}, "
            f"{sequence.planned - sequence.computed} and {sequence.pending}"
        )
    if sequence.planned > len(sequence.tokens) + sequence.pending or sequence.computed > len(sequence.tokens):
        yield "more tokens are planned than known"
    if sequence.max_tokens is not None and sequence.num_generated + sequence.pending > sequence.max_tokens:
        yield "more tokens are planned than asked for"
    if len(sequence.table) != worker.num_pages(sequence.planned):
        yield f"{len(sequence.table)} pages are held for {sequence.planned} tokens"
    refs, findable, first = worker.device.refs, worker.device._content, sequence.computed // worker.page_size
    for number, page in enumerate(sequence.table[first:], first):
        if page in findable:
            yield f"page {page} is not full yet and can be found"
        if refs[page] != 1:
            yield from broken_by_shared(worker, sequence, number, page)


def broken_by_shared(worker: Worker, sequence: Sequence, number: int, page: int) -> Iterator[str]:
    """I4: a page that is not full is shared by branches only, and by none that has written on."""
    sharers = [s for s in worker.running if page in s.table]
    if any(s.request is not sequence.request or s.table.index(page) != number for s in sharers):
        yield f"page {page} is not full yet and shared by more than branches"
    ends = {min(s.planned, (number + 1) * worker.page_size) for s in sharers}
    if len(ends) != 1:
        yield f"branches share page {page} and are written up to {sorted(ends)}"


def broken_by_plan(worker: Worker, plan: StepPlan) -> Iterator[str]:
    """I8, and that a plan hands out what it says it does."""
    if not (plan.rows or plan.swap_out or plan.swap_in or plan.freed_slots or plan.full):
        yield "a plan says nothing"
    if sum(plan.row_tokens) > worker.budget or any(tokens < 1 for tokens in plan.row_tokens):
        yield f"rows of {plan.row_tokens} tokens break the budget of {worker.budget}"
    if worker.settings.max_chunk and plan.rows and max(plan.row_tokens) > worker.settings.max_chunk:
        yield f"rows of {plan.row_tokens} tokens break the chunk of {worker.settings.max_chunk}"
    slots = [*plan.row_slots, *(fork.target for fork in plan.forks)]
    if len(set(slots)) != len(slots) or [sequence.slot for sequence in plan.rows] != plan.row_slots:
        yield "a slot has two rows, or another sequence's"
    if len(plan.rows) > 1 and any(sequence.faults for sequence in plan.rows):
        yield "a suspect is not alone in its plan"
    sampled = zip(plan.rows, plan.row_samples, strict=True)
    constrained = [i for i, (row, samples) in enumerate(sampled) if samples and row.request.spec.is_constrained]
    if constrained != [row.place for row in plan.constrained]:
        yield "a constrained row samples without a mask, or another one has one"
    if plan.lacks_masks and not worker.joined.takes_late_masks:
        yield "masks follow a plan whose worker takes none later"
    if plan.lacks_masks and not all(sequence.request.spec.is_constrained for sequence in plan.rows):
        yield "a row that needs no mask waits for those of others"
    yield from broken_by_masks(plan)


def broken_by_masks(plan: StepPlan) -> Iterator[str]:
    """Each constrained row has the mask of its place in its answer; only one that has ended has none."""
    for row, mask in zip(plan.constrained, plan.masks or [], strict=False):
        known = row.sequence.request.masks.get(row.sequence.branch)
        if known != (row.position, mask) and row.sequence.state is not SequenceState.DONE:
            yield "a row has the mask of another place"


def broken_by_request(core: Core, request: Request) -> Iterator[str]:
    """I6, and that each live sequence is in exactly one queue."""
    if request.state is RequestState.ENDED:
        yield f"request {request.spec.id} has ended and is live"
    for sequence in request.sequences:
        worker = sequence.worker
        if min(sequence.num_raised, sequence.overtaken, sequence.faults, request.preemptions) < 0:
            yield "something took place less often than never"
        match sequence.state:
            case SequenceState.WAITING:
                if worker is not None or sequence.table or sequence.host_table or sequence.slot != NO_SLOT:
                    yield "a waiting sequence holds something"
                if sequence.pending or sequence.planned or sequence.computed or sequence.rows_in_flight:
                    yield "a waiting sequence has computed tokens"
                if not any(other is sequence for other in core.waiting):
                    yield "a waiting sequence is in no queue"
            case SequenceState.RUNNING | SequenceState.SWAPPED:
                queue = () if worker is None else worker.running if sequence.state is RUNNING else worker.swapped
                if worker is None or core.workers.get(worker.id) is not worker:
                    yield "a sequence is on a worker that is not there"
                if not any(other is sequence for other in queue):
                    yield "a sequence is not in the queue of its state"
        if (
            sequence.max_tokens is not None
            and sequence.num_generated >= sequence.max_tokens
            and sequence.state is not DONE
        ):
            yield "a sequence outlived its last token"


def broken_by_ended(request: Request) -> Iterator[str]:
    """I6: what has ended owns nothing."""
    if request.state is not RequestState.ENDED or any(s.state is not DONE for s in request.sequences):
        yield f"request {request.spec.id} ended and is {request.state.name}"
    if any(s.table or s.host_table or s.slot != NO_SLOT or s.worker is not None for s in request.sequences):
        yield f"request {request.spec.id} ended and holds something"


def broken_by_core(core: Core) -> Iterator[str]:
    """I19 and all of the above."""
    for worker in core.workers.values():
        yield from broken_by_worker(worker)
    for request in core.requests.values():
        yield from broken_by_request(core, request)
    live = sum(s.state is not DONE for r in core.requests.values() for s in r.sequences)
    placed = sum(len(w.running) + len(w.swapped) for w in core.workers.values())
    if len(core.waiting) + placed != live:
        yield f"{live} sequences are live, {len(core.waiting)} wait and {placed} have a place"
    if len(core.registry._deadlines) > 4 * len(core.requests) + 66:
        yield f"{len(core.registry._deadlines)} deadlines are kept for {len(core.requests)} requests"
