"""What is wrong or suspicious about a running deployment: rules, each a pure function of what was seen.

Everything a server counts is counted since its start, so two statuses say what came between them. A rule yields one
sentence, with numbers, for each thing that it finds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from octavo.v1 import admin_pb2, inference_pb2

SILENT_SECONDS = 3.0
"""Without a word from a worker that has nothing to do. Heartbeats come twice a second."""
LAG_SECONDS, LAG_ANSWERS = 1.0, 4
"""A step is late after a second and four times the usual; after eight times the scheduler gives the worker up."""
FREE_SHARE = 0.25
"""Of the pages: who waits while so many are free does not wait for pages."""
TOKENS_A_PREEMPTION = 20
"""Who generates fewer between two preemptions computes and copies for nothing."""
FULL_SHARE = 0.95
LEAST_FILLED = 0.8
"""Of the slots in held pages; less wastes memory."""
FAILED_SHARE = 0.01
SLOW, FEWEST_STEPS = 3.0, 5
"""A worker is slow if its steps take so many times what those of its peers take, each having done so many."""

Status = admin_pb2.GetStatusResponse
Worker = admin_pb2.WorkerStatus
NAMES = {
    admin_pb2.WORKER_STATE_JOINING: "joining",
    admin_pb2.WORKER_STATE_READY: "ready",
    admin_pb2.WORKER_STATE_DRAINING: "draining",
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a deployment said of itself. `first` and `last` are some seconds apart."""

    first: Status
    last: Status
    is_serving: bool
    """What its health service says."""
    model: inference_pb2.GetModelResponse = field(default_factory=inference_pb2.GetModelResponse)
    page_maps: Sequence[admin_pb2.WorkerPageMap] = ()

    @property
    def seconds(self) -> float:
        """Between the two statuses."""
        return self.last.uptime_seconds - self.first.uptime_seconds

    def grown(self, count: Callable[[Status], float]) -> float:
        """How much a count grew in between; nothing is known of that after a restart."""
        return count(self.last) - count(self.first) if self.seconds > 0 else 0

    def ready(self) -> list[Worker]:
        """Workers that take work now."""
        return [worker for worker in self.last.workers if worker.state == admin_pb2.WORKER_STATE_READY]


@dataclass(frozen=True)
class Finding:
    """`rule` is the name of the one that found it."""

    rule: str
    sentence: str


def findings(seen: Seen) -> list[Finding]:
    """What all the rules find, in their order."""
    return [Finding(rule.__name__, sentence) for rule in RULES for sentence in rule(seen)]


def nobody_works(seen: Seen) -> Iterator[str]:
    if seen.ready():
        return
    waiting = f"sequences that wait: {seen.last.waiting}"
    if not seen.last.workers:
        yield f"No worker is here ({waiting}): start one, or look at the workers' own output."
        return
    states = ", ".join(f"{worker.worker_id} is {NAMES.get(worker.state, 'new')}" for worker in seen.last.workers)
    yield f"No worker takes new work ({waiting}): {states}. `octavo resume` ends a drain."


def scheduler_restarted(seen: Seen) -> Iterator[str]:
    if seen.seconds <= 0:
        yield f"The scheduler started anew {seen.last.uptime_seconds:.1f} s ago, between two looks: its log says why."


def health_contradicts(seen: Seen) -> Iterator[str]:
    if seen.ready() and not seen.is_serving:
        yield f"Health says NOT_SERVING, but workers are ready ({len(seen.ready())}): is the scheduler shutting down?"


def workers_differ(seen: Seen) -> Iterator[str]:
    if len(seen.model.engines) > 1:
        kinds = "; ".join(
            f"{engine.num_workers} with {engine.kernels} kernels, pages of {engine.page_size} tokens in {engine.kv_dtype}"
            for engine in seen.model.engines
        )
        yield f"Workers compute differently ({kinds}): an answer may depend on who gives it."


def worker_is_silent(seen: Seen) -> Iterator[str]:
    for worker in seen.last.workers:
        if not worker.plans_in_flight and worker.silent_seconds > SILENT_SECONDS:
            yield (
                f"{worker.worker_id} has nothing to do and has said nothing for {worker.silent_seconds:.1f} s; it should "
                "twice a second. Look at its machine and the network."
            )


def step_is_late(seen: Seen) -> Iterator[str]:
    for worker in seen.last.workers:
        usual = _mean(worker.answer_seconds)
        if worker.step_lag_seconds > max(LAG_SECONDS, LAG_ANSWERS * usual):
            yield (
                f"{worker.worker_id} has computed a step for {worker.step_lag_seconds:.1f} s; {usual:.3f} s is usual. It is "
                "given up soon: look for other loads on its machine."
            )


def worker_is_slow(seen: Seen) -> Iterator[str]:
    """Times of steps are compared, since who has fewer sequences rightly generates less; twice as many may take long."""
    before = {worker.worker_id: worker for worker in seen.first.workers}
    speeds: dict[str, tuple[float, int]] = {}
    for worker in seen.ready():
        if worker.worker_id in before:
            earlier, now = before[worker.worker_id].answer_seconds, worker.answer_seconds
            steps = sum(now.counts) - sum(earlier.counts)
            if steps >= FEWEST_STEPS:
                speeds[worker.worker_id] = (now.sum - earlier.sum) / steps, max(worker.running, 1)
    for name, (seconds, running) in speeds.items():
        peers = [speeds[other] for other in speeds if other != name]
        if peers and seconds > SLOW * median(peer[0] for peer in peers) and running <= 2 * median(p[1] for p in peers):
            peer = median(count / each for each, count in peers)
            yield (
                f"{name} generates about {running / seconds:.0f} tokens/s, a step of {running} sequences taking "
                f"{seconds:.3f} s; its peers about {peer:.0f} tokens/s. Look for other loads on its machine."
            )


def pages_are_quarantined(seen: Seen) -> Iterator[str]:
    for worker in seen.last.workers:
        for tier, pages in (("device", worker.device), ("host", worker.host)):
            if pages.quarantined:
                yield (
                    f"{pages.quarantined} of {pages.total} {tier} pages of {worker.worker_id} are quarantined: the page "
                    "ledger was found wrong, which is a bug in Octavo. Please report the line in the scheduler's log; the "
                    "pages come back when the worker joins anew."
                )


def pages_do_not_add_up(seen: Seen) -> Iterator[str]:
    maps = {each.worker_id: each for each in seen.page_maps}
    for worker in seen.last.workers:
        for tier in ("device", "host"):
            pages = getattr(worker, tier)
            counted = pages.free + pages.cached + pages.held + pages.fenced + pages.quarantined
            if counted != pages.total:
                yield f"{worker.worker_id} has {pages.total} {tier} pages, but {counted} are free, in use or set aside."
            if worker.worker_id in maps:
                mapped = sum(getattr(maps[worker.worker_id], tier).num_pages)
                if mapped != pages.total:
                    yield f"{worker.worker_id} has {pages.total} {tier} pages, but its page map shows {mapped}."


def pages_are_lost(seen: Seen) -> Iterator[str]:
    """A moment without requests still has pages of the last one; two moments have not."""
    if seen.first.live_requests or seen.last.live_requests or seen.grown(lambda status: status.counters.ended):
        return
    for worker in seen.last.workers:
        if worker.device.held or worker.host.held:
            yield (
                f"{worker.worker_id} holds {worker.device.held} device and {worker.host.held} host pages, but no request "
                "is alive: please report this."
            )


def queue_grows_beside_free_pages(seen: Seen) -> Iterator[str]:
    total = sum(worker.device.total for worker in seen.ready())
    free = sum(worker.device.free + worker.device.cached for worker in seen.ready())
    if 0 < seen.first.waiting < seen.last.waiting and free > FREE_SHARE * total:
        yield (
            f"Sequences that wait grew from {seen.first.waiting} to {seen.last.waiting} in {seen.seconds:.1f} s, while "
            f"{free} of {total} device pages are free: `octavo explain` says of a request what it waits for."
        )


def requests_are_refused(seen: Seen) -> Iterator[str]:
    if refused := seen.grown(lambda status: _outcome(status, "overloaded")):
        yield (
            f"The queue is full: {refused:.0f} refused in {seen.seconds:.1f} s. Add workers, or raise "
            "--max-queued-requests if clients can wait."
        )


def requests_fail(seen: Seen) -> Iterator[str]:
    failed, ended = _outcome(seen.last, "failed"), seen.last.counters.ended
    if failed > FAILED_SHARE * ended:
        yield f"Of {ended} requests {failed} failed since start: the scheduler's log names steps and reasons."


def worker_was_lost(seen: Seen) -> Iterator[str]:
    if lost := seen.grown(lambda status: status.counters.workers_lost):
        yield f"Workers that left or were given up in {seen.seconds:.1f} s: {lost:.0f}. The scheduler's log says why."


def swaps_thrash(seen: Seen) -> Iterator[str]:
    preempted = seen.grown(lambda status: status.counters.drops + status.counters.swaps)
    generated = seen.grown(lambda status: status.counters.generated_tokens)
    if preempted * TOKENS_A_PREEMPTION > generated:
        moved = seen.grown(lambda status: status.counters.swapped_out_bytes + status.counters.swapped_in_bytes)
        yield (
            f"Sequences were preempted {preempted:.0f} times in {seen.seconds:.1f} s, for {generated:.0f} tokens generated "
            f"({moved / 2**20:.0f} MiB swapped): more pages, or a lower --max-num-seqs."
        )


def host_tier_is_full(seen: Seen) -> Iterator[str]:
    for worker in seen.last.workers:
        host = worker.host
        if host.total and host.held + host.fenced + host.quarantined > FULL_SHARE * host.total:
            yield (
                f"{host.held} of {host.total} host pages of {worker.worker_id} are held: who is preempted next is "
                "computed again. A larger --swap-space helps."
            )


def pages_are_filled_badly(seen: Seen) -> Iterator[str]:
    for worker in seen.last.workers:
        if 0 < worker.slot_utilisation < LEAST_FILLED and sum(worker.answer_seconds.counts) > 1000:
            yield (
                f"Of the token slots in held pages of {worker.worker_id} {worker.slot_utilisation:.1%} hold a token, with "
                f"{worker.page_size} tokens a page: record a log, and `octavo doctor LOG` advises a page size."
            )


RULES = (
    nobody_works,
    scheduler_restarted,
    health_contradicts,
    workers_differ,
    worker_is_silent,
    step_is_late,
    worker_is_slow,
    pages_are_quarantined,
    pages_do_not_add_up,
    pages_are_lost,
    queue_grows_beside_free_pages,
    requests_are_refused,
    requests_fail,
    worker_was_lost,
    swaps_thrash,
    host_tier_is_full,
    pages_are_filled_badly,
)


def open_doors(*, address: str, is_plain: bool, is_open: bool) -> list[Finding]:
    """Of an address that others can reach: whether it speaks plain text, and tells its status without a token."""
    found = []
    if is_plain:
        found.append(
            Finding("no_tls", f"{address} can be reached from elsewhere and speaks plain text: put TLS there.")
        )
    if is_open:
        sentence = f"{address} can be reached from elsewhere and obeys administrators without a token: ask for one."
        found.append(Finding("no_token", sentence))
    return found


def _mean(histogram: admin_pb2.Histogram) -> float:
    count = sum(histogram.counts)
    return histogram.sum / count if count else 0.0


def _outcome(status: Status, outcome: str) -> int:
    return sum(each.count for each in status.service.outcomes if each.outcome == outcome)
