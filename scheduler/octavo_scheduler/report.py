"""The state of the core as messages of octavo.v1.AdminService. Asks only; runs in the loop's thread.

`labels`: what clients call their requests, by id; a request that is not among them goes by its id.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from octavo.v1 import admin_pb2 as pb

from octavo_scheduler.core import Core
from octavo_scheduler.core.page_map import PageState, Tier, holders, page_states, runs
from octavo_scheduler.core.pages import PagePool
from octavo_scheduler.core.prefix import pin_keys
from octavo_scheduler.core.request import Request, Sequence
from octavo_scheduler.core.states import SequenceState, WorkerState
from octavo_scheduler.core.worker import Worker
from octavo_scheduler.loop import Loop
from octavo_scheduler.member import Member
from octavo_scheduler.tally import Histogram, RequestTally

WORKER_STATES = {
    WorkerState.JOINING: pb.WORKER_STATE_JOINING,
    WorkerState.READY: pb.WORKER_STATE_READY,
    WorkerState.DRAINING: pb.WORKER_STATE_DRAINING,
}
BRANCH_STATES = {
    SequenceState.WAITING: pb.BRANCH_STATE_WAITING,
    SequenceState.RUNNING: pb.BRANCH_STATE_RUNNING,
    SequenceState.SWAPPED: pb.BRANCH_STATE_SWAPPED,
}
PAGE_STATES = {
    PageState.FREE: pb.PAGE_STATE_FREE,
    PageState.CACHED: pb.PAGE_STATE_CACHED,
    PageState.HELD: pb.PAGE_STATE_HELD,
    PageState.SHARED: pb.PAGE_STATE_SHARED,
    PageState.FENCED: pb.PAGE_STATE_FENCED,
    PageState.SWAPPING: pb.PAGE_STATE_SWAPPING,
    PageState.QUARANTINED: pb.PAGE_STATE_QUARANTINED,
}


def status(core: Core, loop: Loop, now: float) -> pb.GetStatusResponse:
    """Workers, queue and counters."""
    members = {member.worker: member for member in loop.members.values()}
    waiting = Counter(sequence.request.spec.priority for sequence in core.waiting)
    return pb.GetStatusResponse(
        live_requests=len(core.requests),
        waiting=len(core.waiting),
        workers=[_worker(worker, members.get(name), now) for name, worker in sorted(core.workers.items())],
        counters=_counters(core, loop),
        service=pb.Service(
            inter_token_seconds=_histogram(loop.tally.inter_token), step_tokens=_histogram(loop.tally.step_tokens)
        ),
        queue=[pb.QueueDepth(priority=each, waiting=count) for each, count in sorted(waiting.items(), reverse=True)],
    )


def service(tally: RequestTally) -> pb.Service:
    """What requests met with; all but what the loop knows."""
    return pb.Service(
        first_token_seconds=_histogram(tally.first_token),
        queue_seconds=_histogram(tally.queue),
        prefill_seconds=_histogram(tally.prefill),
        decode_seconds=_histogram(tally.decode),
        total_seconds=_histogram(tally.total),
        token_seconds=_histogram(tally.token),
        prompt_tokens=_histogram(tally.prompt_tokens),
        answer_tokens=_histogram(tally.answer_tokens),
        outcomes=[pb.OutcomeCount(outcome=name, count=count) for name, count in tally.outcomes.items()],
        streams_cut_off=tally.cut_off,
        prefix_queries=tally.prefix_queries,
        prefix_hits=tally.prefix_hits,
    )


_ADDED_HISTOGRAMS = (
    *("first_token_seconds", "queue_seconds", "prefill_seconds", "decode_seconds", "total_seconds", "token_seconds"),
    *("prompt_tokens", "answer_tokens"),
)
_ADDED_COUNTS = ("streams_cut_off", "prefix_queries", "prefix_hits")


def total(services: Iterable[pb.Service]) -> pb.Service:
    """The sum of what several fronts counted; each must be sound."""
    whole = service(RequestTally())
    for part in services:
        for name in _ADDED_HISTOGRAMS:
            sums, added = getattr(whole, name), getattr(part, name)
            sums.counts[:] = [a + b for a, b in zip(sums.counts, added.counts, strict=True)]
            sums.sum += added.sum
        for count, more in zip(whole.outcomes, part.outcomes, strict=True):
            count.count += more.count
        for name in _ADDED_COUNTS:
            setattr(whole, name, getattr(whole, name) + getattr(part, name))
    return whole


def is_sound(part: pb.Service) -> bool:
    """Whether it has the shape of what `service` makes, so that it can be added."""
    known = service(RequestTally())
    names = [each.outcome for each in part.outcomes] == [each.outcome for each in known.outcomes]
    pairs = [(getattr(part, name), getattr(known, name)) for name in _ADDED_HISTOGRAMS]
    return names and all(one.bounds == two.bounds and len(one.counts) == len(two.counts) for one, two in pairs)


def requests(core: Core, labels: Mapping[str, str], now: float) -> list[pb.RequestStatus]:
    """All live requests, in order of arrival."""
    return [_request(request, labels, now) for request in sorted(core.requests.values(), key=lambda r: r.arrival)]


def page_maps(present: Iterable[Worker], labels: Mapping[str, str], with_holders: bool) -> list[pb.WorkerPageMap]:
    """The pages of these workers."""
    return [
        pb.WorkerPageMap(
            worker_id=worker.id,
            page_size=worker.page_size,
            device=_page_map(worker, Tier.DEVICE, labels, with_holders),
            host=_page_map(worker, Tier.HOST, labels, with_holders),
        )
        for worker in present
    ]


def pins(core: Core) -> list[pb.PinStatus]:
    """All pins, by name, and how much of them is there."""
    found = []
    for name, pin in sorted(core.pins.items()):
        keys = [(worker, pin_keys(worker, pin.salt, pin.tokens)) for worker in core.workers.values()]
        pages = sum(worker.device.num_found(k) + worker.host.num_found(k) for worker, k in keys)
        found.append(pb.PinStatus(name=name, salt=pin.salt, tokens=len(pin.tokens), pages=pages))
    return found


def _counters(core: Core, loop: Loop) -> pb.Counters:
    totals, present, tally = core.counters, core.workers.values(), loop.tally
    return pb.Counters(
        accepted=totals.accepted,
        refused=totals.refused,
        ended=totals.ended,
        cancelled=totals.cancelled,
        prompt_tokens=totals.prompt_tokens,
        generated_tokens=totals.generated_tokens,
        drops=totals.drops + sum(worker.num_drops for worker in present),
        swaps=totals.swaps + sum(worker.num_swaps for worker in present),
        stale_messages=totals.stale_messages + loop.num_stale,
        bad_messages=loop.num_bad,
        workers_lost=totals.workers_lost,
        audit_violations=totals.audit_violations,
        workers_joined=tally.workers_joined,
        swapped_out_bytes=tally.swapped_out_bytes,
        swapped_in_bytes=tally.swapped_in_bytes,
        swap_seconds=tally.swap_seconds,
    )


def _histogram(histogram: Histogram) -> pb.Histogram:
    return pb.Histogram(bounds=histogram.bounds, counts=histogram.counts, sum=histogram.sum)


def _worker(worker: Worker, member: Member | None, now: float) -> pb.WorkerStatus:
    status = pb.WorkerStatus(
        worker_id=worker.id,
        state=WORKER_STATES[worker.state],
        page_size=worker.page_size,
        device=_page_counts(worker.device),
        host=_page_counts(worker.host),
        running=len(worker.running),
        swapped=len(worker.swapped),
        plans_in_flight=len(worker.in_flight),
        step=worker.step,
        kernels=worker.joined.kernels,
        slot_utilisation=worker.utilisation.share,
        saturated_slot_utilisation=worker.saturated.share,
    )
    if member is not None:
        status.silent_seconds = now - member.heard_at
        status.step_lag_seconds = now - member.sent[0].at if member.sent else 0.0
        status.plan_seconds.CopyFrom(_histogram(member.plan_seconds))
        status.answer_seconds.CopyFrom(_histogram(member.answer_seconds))
        status.execute_seconds.CopyFrom(_histogram(member.execute_seconds))
        if member.memory is not None:
            status.device_memory_used, status.device_memory_total = member.memory
    return status


def _page_counts(pool: PagePool) -> pb.PageCounts:
    return pb.PageCounts(
        total=pool.total,
        free=pool.num_free,
        cached=pool.num_cached,
        held=pool.num_held,
        fenced=pool.num_fenced,
        quarantined=len(pool.quarantined),
        peak_held=pool.peak_held,
    )


def _request(request: Request, labels: Mapping[str, str], now: float) -> pb.RequestStatus:
    spec = request.spec
    return pb.RequestStatus(
        id=spec.id,
        request_id=labels.get(spec.id, spec.id),
        tenant=spec.tenant,
        priority=spec.priority,
        age_seconds=now - request.arrived_at,
        prompt_tokens=len(spec.prompt),
        preemptions=request.preemptions,
        branches=[_branch(s) for s in request.sequences if s.state is not SequenceState.DONE],
    )


def _branch(sequence: Sequence) -> pb.BranchStatus:
    return pb.BranchStatus(
        branch=sequence.branch,
        state=BRANCH_STATES[sequence.state],
        worker_id=sequence.worker.id if sequence.worker else "",
        slot=_slot(sequence),
        answer_tokens=sequence.num_generated,
        computed_tokens=sequence.computed,
        device_pages=len(sequence.table),
        host_pages=len(sequence.host_table),
    )


def _slot(sequence: Sequence) -> int | None:
    return sequence.slot if sequence.slot >= 0 else None


def _page_map(worker: Worker, tier: Tier, labels: Mapping[str, str], with_holders: bool) -> pb.PageMap:
    lengths = runs(page_states(worker, tier))
    return pb.PageMap(
        states=[PAGE_STATES[state] for state, _ in lengths],
        num_pages=[length for _, length in lengths],
        holders=[
            pb.PageHolder(
                id=(request := sequence.request.spec.id),
                request_id=labels.get(request, request),
                branch=sequence.branch,
                slot=_slot(sequence),
                pages=pages,
            )
            for sequence, pages in (holders(worker, tier) if with_holders else ())
        ],
    )
