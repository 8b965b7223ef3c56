"""The production core under observation: after every event the laws hold for what it touched, or Violation is raised."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from octavo_scheduler.core import Core, Settings, events
from octavo_scheduler.core.audit import violations
from octavo_scheduler.core.events import Event, Finished, Output, Refused
from octavo_scheduler.core.pages import NULL_PAGE, Content, PagePool
from octavo_scheduler.core.plan import Arrival, StepPlan
from octavo_scheduler.core.request import FinishReason, Request, RequestSpec, Sequence
from octavo_scheduler.core.states import SequenceState, WorkerState
from octavo_scheduler.core.waiting import RAISE_EVERY
from octavo_scheduler.core.worker import Worker

from tests.simulation import laws
from tests.simulation.coverage import Coverage
from tests.simulation.diligence import Before, Diligence
from tests.simulation.fairness import Fairness
from tests.simulation.oracle import Oracle
from tests.simulation.told import Told, plan_of
from tests.simulation.violation import Violation

FULL_AUDIT_EVERY = 64
"""Events between two audits of everything, by these laws and by the core's own auditor."""

NAMES: dict[type, str] = {
    events.StepDone: "step done",
    events.Nack: "nack",
    events.Lost: "lost",
    events.Joined: "joined",
    events.Drain: "drain",
    events.Rates: "rates",
}


@dataclass(frozen=True)
class Stay:
    """What the simulation knows of a worker that the core believes to be here."""

    answer: Callable[[int], tuple[tuple[int, ...], bool] | None]
    """The tokens that the worker answered to a step in this stay, and whether a fault spoilt them."""
    is_blameless: Callable[[], bool]


@dataclass(frozen=True)
class Written:
    """A row when its step is acknowledged."""

    request: str
    salt: str
    tokens: list[int]
    table: list[int]
    computed: int
    before: int = 0
    arrival: Arrival | None = None
    """Or what came from another tier with the step."""
    has_no_token: bool = False
    """It has none although one was to be sampled."""


class WatchedCore(Core):
    def __init__(self, settings: Settings, oracle: Oracle, coverage: Coverage, stay: Callable[[str], Stay]) -> None:
        super().__init__(settings)
        self.oracle, self.coverage = oracle, coverage
        self.num_checks = 0
        self.num_ticks = 0
        self.num_prompt_tokens = 0
        self.num_plans = 0
        self.stays: dict[str, Stay] = {}
        self.num_lost = 0
        self.undelivered: list[Output] = []
        self.tell: Callable[[str], None] | None = None
        self._stay = stay
        self._known: dict[PagePool, dict[int, Content]] = {}
        self._named: dict[tuple[Worker, int], set[int]] = {}
        """Pages in the tables of a plan's rows."""
        self._next_evicted: dict[PagePool, int] = {}
        self._prefix_of: dict[bytes, tuple[int, tuple[int, ...]]] = {}
        self._key_of: dict[tuple[bytes, tuple[int, tuple[int, ...]]], bytes] = {}
        self._salts: dict[bytes, str] = {}
        """Under which salt a key was made."""
        self._overtakes_left: dict[Sequence, int] = {}
        self._head: tuple[Sequence | None, int] = None, 0
        """Who has waited longest, and how many started in the meantime."""
        self.fairness = Fairness(self)
        self.diligence = Diligence(self)
        self.num_given_up: Counter[SequenceState] = Counter()
        """Victims, by what became of them."""
        self._num_stale = 0
        self._last_counts: dict[str, int] = {}
        self._requests: dict[str, Request] = {}

    # the verbs --------------------------------------------------------------------------------------------------------

    def submit(self, spec: RequestSpec, now: float) -> list[Output]:
        is_full, least = self._is_full(spec), self.fairness.least_given(spec)
        outputs = super().submit(spec, now)
        self.fairness.submitted(spec, least, outputs, now)
        if self.tell:
            self.tell(f"{spec} -> {outputs}")
        self._check_admission(spec, outputs, is_full)
        if spec.id in self.requests:
            self._requests[spec.id] = self.requests[spec.id]
        self._check(requests=(spec.id,))
        return self._heard(outputs, now)

    def abort(self, request_id: str, now: float, at: int | None = None, branch: int = 0) -> list[Output]:
        workers = self._of_request(request_id, "abort" if at is None else "abort at")
        outputs = super().abort(request_id, now, at, branch)
        asked = self.oracle.asked.get(request_id)
        self._heard(outputs, now)
        if asked is not None and not (asked.has_ended if at is None else asked.branches[branch].end):
            raise Violation(f"{request_id} was aborted and lives on")
        if self.tell:
            self.tell(f"abort {request_id} at {at} of branch {branch} -> {outputs}")
        self._check(workers)
        return outputs

    def plan(self, worker_id: str, now: float) -> StepPlan | None:
        worker = self.workers[worker_id]
        if len(worker.in_flight) >= self.settings.plans_in_flight:
            if super().plan(worker_id, now) is not None:
                raise Violation(f"{len(worker.in_flight)} plans are in flight")
            return None
        before = Before.of(self, worker)
        if before.running or before.waiting or worker.in_flight:
            self._cover("plan", worker, (*before.running, *before.waiting, *before.swapped, *_ended(worker)))
        num_held = sum(len(s.table) for s in before.running)
        must_swap = self.settings.preempt == "swap" and worker.host.num_available >= num_held
        plan = super().plan(worker_id, now)
        self._hold(self.diligence.broken(worker, before, plan, now))
        self._note_given_up(before, must_swap=must_swap)
        if plan is None:
            if len(worker.running) != len(before.running):
                self._check((worker,))
            return None
        self.num_plans += 1
        if self.tell:
            self.tell(f"plan {plan.step} for {[s.request.spec.id for s in plan.rows]}")
        self._note_seen(plan, before.waiting)
        if any(new.sequence in before.running for new in plan.new_slots):
            raise Violation("a sequence is let go and started again by one plan")
        self._admitted(worker, plan, before, now)
        self._hold(laws.broken_by_plan(worker, plan))
        self._named[worker, plan.step] = {page for s, _, _ in laws.rows_of(plan) for page in s.table}
        self._check((worker,))
        return plan

    def _note_given_up(self, before: Before, *, must_swap: bool) -> None:
        """What became of those that a plan preempted or moved."""
        for sequence in before.running:
            if sequence.state is not SequenceState.RUNNING:
                if must_swap and sequence.state is SequenceState.WAITING:
                    raise Violation("a sequence was dropped although swap was demanded and had room")
                self.num_given_up[sequence.state] += 1
                if sequence.deferred_at is not None:
                    self.coverage.seen("running sequence let go to another worker")
                self.oracle.asked[sequence.request.spec.id].preemptions += 1
        for sequence in before.swapped:
            if sequence.state is SequenceState.WAITING:
                self.num_given_up[sequence.state] += 1
                self.coverage.seen("swapped sequence let go to another worker")
        if before.running and before.running[0].state is not SequenceState.RUNNING:
            raise Violation("the first of all sequences was preempted")

    def open_masks(self, worker_id: str) -> StepPlan | None:
        plan = super().open_masks(worker_id)
        if plan is not None:
            self._hold(laws.broken_by_masks(plan))
            if any(row.sequence.state is SequenceState.DONE for row in plan.constrained):
                self.coverage.seen("masks follow for rows that have ended")
        return plan

    def apply(self, event: Event, now: float) -> list[Output]:
        if isinstance(event, events.Tick):
            return self._tick(event, now)
        workers: Iterable[Worker] = self.workers.values()
        if isinstance(event, events.Masked):
            workers = self._of_request(event.request, "masked")
        elif not isinstance(event, events.Flush | events.Pin | events.Unpin):
            workers = self._before(event)
        elif isinstance(event, events.Flush):
            for worker in workers:
                self._cover("flush", worker, (*worker.running, *worker.swapped, *self.waiting, *_ended(worker)))
        wrote: list[Written] = []
        without_token: set[str] = set()
        if isinstance(event, events.StepDone):
            wrote, without_token = self._check_answer(event), self._note_no_numbers(event)
        if isinstance(event, events.Rates) and min(event.copy_bytes_per_second, event.prefill_tokens_per_second) < 0:
            raise Violation(f"{event.worker} is said to copy backwards")
        if isinstance(event, events.StepDone | events.Nack):
            self._num_stale += self._is_stale(event)
        told = Told.of(self, event)
        outputs = super().apply(event, now)
        self.num_lost += told.num_gone(self)
        self._hold(told.broken(self, event, outputs, now))
        if self.counters.stale_messages != self._num_stale:
            raise Violation(f"{self._num_stale} messages were stale, not {self.counters.stale_messages}")
        if self.tell:
            self.tell(f"{event} -> {outputs}")
        if isinstance(event, events.Joined):
            self.stays[event.worker] = self._stay(event.worker)
            worker = self.workers[event.worker]
            workers = (worker,)
            self._known[worker.device], self._known[worker.host] = {}, {}
        if wrote and self.settings.prefix_cache and not without_token:
            self._check_published(event, wrote)
        is_flush = isinstance(event, events.Flush) or bool(without_token)
        self._check(workers, (row.request for row in wrote), wrote, is_flush=is_flush)
        self._heard(outputs, now)
        if not without_token.isdisjoint(self.oracle.live):
            raise Violation(f"of {without_token} a row had no token, and not all of them have ended")
        for worker in workers if without_token else ():
            doubtful = {page for row in wrote if row.has_no_token for page in row.table}
            if not doubtful.isdisjoint(worker.device._content):
                raise Violation(f"of pages {sorted(doubtful)}, from which no numbers came, some can be found")
        return outputs

    def _is_stale(self, event: "events.StepDone | events.Nack") -> bool:
        """Whether it speaks of a step that is not the one to be answered (or, for a Nack, of one answered already)."""
        worker = self.workers.get(event.worker)
        first = worker.in_flight[0].step if worker is not None and worker.in_flight else event.step
        if isinstance(event, events.StepDone) and first < event.step:
            raise Violation(f"step {event.step} is said to be done before step {first}")
        return plan_of(self, event) is None

    def _tick(self, event: events.Tick, now: float) -> list[Output]:
        self.num_ticks += 1
        due = self.oracle.overdue(now)
        workers = [worker for name in due for worker in self._of_request(name, "deadline")]
        outputs = super().apply(event, now)
        if {o.request for o in outputs if isinstance(o, Finished) and o.reason is FinishReason.DEADLINE} != set(due) & (
            {o.request for o in outputs}
        ) or any(name in self.requests for name in due):
            raise Violation(f"the deadlines of {due} have passed, and {outputs} came of it")
        if due:
            self._check(workers)
        return self._heard(outputs, now)

    def _heard(self, outputs: list[Output], now: float) -> list[Output]:
        """Judges what comes of an event; the loop must hand all of it on, in this order."""
        self.oracle.hear(outputs, now)
        self.undelivered += outputs
        for name in dict.fromkeys(output.request for output in outputs if isinstance(output, Finished | Refused)):
            if name not in self.oracle.live and name in self._requests:
                request = self._requests.pop(name)
                self.fairness.ended(request.sequences)
                self.diligence.ended(request.sequences)
                self._hold(laws.broken_by_ended(request))
        return outputs

    # before an event --------------------------------------------------------------------------------------------------

    def _before(self, event: Event) -> tuple[Worker, ...]:
        """Notes what the event meets, and counts the failures that it blames on requests."""
        kind, worker = NAMES[type(event)], self.workers.get(event.worker)  # type: ignore[union-attr]
        if worker is None:
            self.coverage.worker("GONE", kind)
            if isinstance(event, events.Joined):
                self._cover_sequences(kind, self.waiting)
            return ()
        waiting = self.waiting if isinstance(event, events.Joined) else ()
        self._cover(kind, worker, (*worker.running, *worker.swapped, *waiting, *_ended(worker)))
        if isinstance(event, events.Nack | events.Lost):
            self._cover_sequences(kind, self.waiting)
            self._count_failures(worker)
        if isinstance(event, events.Lost) and self.stays[event.worker].is_blameless():
            raise Violation(f"worker {event.worker} is given up without a reason")
        return (worker,)

    def _count_failures(self, worker: Worker) -> None:
        """One of the plans in flight failed, we do not say which."""
        for plan in worker.in_flight:
            suspects = [s for s in plan.rows if s.state is not SequenceState.DONE]
            for sequence in suspects:
                asked = self.oracle.asked[sequence.request.spec.id]
                asked.failures += 1
                asked.failures_alone += len(suspects) == 1
                asked.failures_smallest += sum(plan.row_tokens) == 1

    def _of_request(self, name: str, kind: str) -> list[Worker]:
        request = self.requests.get(name)
        if request is None:
            return []
        self._cover_sequences(kind, request.sequences)
        return [s.worker for s in request.sequences if s.worker is not None]

    def _cover(self, kind: str, worker: Worker, sequences: Iterable[Sequence]) -> None:
        self.coverage.worker(worker.state.name, kind)
        self._cover_sequences(kind, sequences)

    def _cover_sequences(self, kind: str, sequences: Iterable[Sequence]) -> None:
        for state in {sequence.state for sequence in sequences}:
            self.coverage.sequence(state.name, kind)

    def _check_answer(self, event: events.StepDone) -> "list[Written]":
        """I12: a result counts only if the worker gave it, in this stay, to the oldest step in flight."""
        worker = self.workers.get(event.worker)
        if worker is None or not worker.in_flight or worker.in_flight[0].step != event.step:
            return []
        answer = self.stays[event.worker].answer(event.step)
        if answer is None or answer[0] != event.tokens:
            raise Violation(
                f"step {event.step} of worker {event.worker} was answered with {answer}, not {event.tokens}"
            )
        if not answer[1]:
            self._count_failures(worker)
        plan = worker.in_flight[0]
        if plan.lacks_masks:
            raise Violation(f"step {event.step} is done, and its masks were never sent")
        ends = self._without_token(event, plan) if answer[1] else {}
        if answer[1]:
            for place, (sequence, count, _) in enumerate(laws.rows_of(plan)):
                is_alive = sequence.state is not SequenceState.DONE and place <= ends.get(
                    sequence.request.spec.id, place
                )
                if is_alive and sequence in plan.rows:
                    self.num_prompt_tokens += sum(
                        position < sequence.num_prompt
                        for position in range(sequence.computed, sequence.computed + count)
                    )
        return [
            Written(
                s.request.spec.id,
                s.request.spec.salt,
                s.tokens,
                list(s.table),
                s.computed + count,
                s.computed,
                has_no_token=ends.get(s.request.spec.id) == place,
            )
            for place, (s, count, _) in enumerate(laws.rows_of(plan))
            if s.state is not SequenceState.DONE
        ] + [Written("", "", [], [], 0, 0, arrival) for arrival in plan.arrivals]

    def _note_no_numbers(self, event: events.StepDone) -> set[str]:
        """Live requests of which a row has no token: they have to end."""
        worker = self.workers.get(event.worker)
        if worker is None or self._is_stale(event):
            return set()
        answer = self.stays[event.worker].answer(event.step)
        if answer is None or not answer[1]:
            return set()
        found = set(self._without_token(event, worker.in_flight[0]))
        for name in found:
            self.oracle.asked[name].has_no_numbers = True
        return found

    @staticmethod
    def _without_token(event: events.StepDone, plan: StepPlan) -> dict[str, int]:
        """Live requests of which a row has no token, and at which place of the plan the first such row is."""
        found: dict[str, int] = {}
        tokens = iter(event.tokens)
        for place, (sequence, _, is_sampled) in enumerate(laws.rows_of(plan)):
            if is_sampled and next(tokens) == events.NO_TOKEN and sequence.state is not SequenceState.DONE:
                found.setdefault(sequence.request.spec.id, place)
        return found

    def _note_seen(self, plan: StepPlan, waiting: list[Sequence]) -> None:
        for what, happened in (
            ("pages swapped out", plan.swap_out),
            ("pages swapped in", plan.swap_in),
            ("evicted page moved down", plan.swap_out and self._moves_evicted(plan)),
            ("prefix brought up", plan.swap_in and any(new.sequence in waiting for new in plan.new_slots)),
            ("page copied before it is written", plan.copy),
            ("branches forked", plan.forks),
            ("prefix found", any(new.num_computed for new in plan.new_slots)),
            ("plan is full", plan.full),
            ("suspect alone", plan.rows and plan.rows[0].faults),
            ("log-probabilities asked for", plan.scored),
            ("row with a mask", plan.constrained),
            ("masked rows beside free ones", 0 < len(plan.constrained) < sum(map(bool, plan.row_samples))),
            ("masks follow", plan.lacks_masks),
        ):
            if happened:
                self.coverage.seen(what)

    def _moves_evicted(self, plan: StepPlan) -> bool:
        swapped = {page for s in self.workers[plan.worker].swapped for page in s.host_table}
        return any(page not in swapped for _, page in plan.swap_out)

    # after an event ---------------------------------------------------------------------------------------------------

    def _check(
        self,
        workers: Iterable[Worker] = (),
        requests: Iterable[str] = (),
        wrote: "Iterable[Written]" = (),
        *,
        is_flush: bool = False,
    ) -> None:
        self.num_checks += 1
        if self.num_checks % FULL_AUDIT_EVERY == 0:
            self.check_all()
        for worker in workers:
            if worker.id in self.workers:
                self._hold(laws.broken_by_worker(worker))
                self._check_fences(worker)
                for pool in (worker.device, worker.host):
                    if pool._content != self._known[pool]:
                        self._check_findable(worker, pool, wrote, is_flush=is_flush)
                    self._next_evicted[pool] = next(iter(pool.cached), NULL_PAGE)
            elif worker.running or worker.swapped or worker.in_flight or worker.state is not WorkerState.GONE:
                raise Violation("a worker that is gone has sequences")
        for name in requests:
            if name in self.requests:
                self._hold(laws.broken_by_request(self, self.requests[name]))

    def _check_fences(self, worker: Worker) -> None:
        """A page that rows in flight name can neither be taken nor evicted."""
        pool = worker.device
        for plan in worker.in_flight:
            named = self._named[worker, plan.step]
            if not all(named.isdisjoint(pages) for pages in (pool.free, pool.cached, pool.kept)):
                raise Violation(f"pages of step {plan.step}, which is in flight, are free or cached")

    def check_all(self) -> None:
        counts = asdict(self.counters)
        if any(counts[name] < count for name, count in self._last_counts.items()):
            raise Violation(f"a count has fallen: {self._last_counts} became {counts}")
        self._last_counts = counts
        self._hold(laws.broken_by_core(self))
        self._hold(violations(self))
        if self.requests.keys() - self.oracle.asked.keys():
            raise Violation("the core has requests that nobody made")

    @staticmethod
    def _hold(broken: Iterable[str]) -> None:
        for sentence in broken:
            raise Violation(sentence)

    def _is_full(self, spec: RequestSpec) -> bool:
        """Whether the queue, or this tenant's, has no place for one more request."""
        settings, is_full = self.settings, False
        for tenant, most_requests, most_tokens in (
            (None, settings.max_queued_requests, settings.max_queued_tokens),
            (spec.tenant, settings.max_tenant_queued_requests, settings.max_tenant_queued_tokens),
        ):
            queued = [len(other.prompt) for other in self.oracle.queued(tenant) if other.id != spec.id]
            is_full |= most_requests is not None and len(queued) >= most_requests
            is_full |= most_tokens is not None and queued != [] and sum(queued) + len(spec.prompt) > most_tokens
        return is_full

    def _check_admission(self, spec: RequestSpec, outputs: list[Output], is_full: bool) -> None:
        """Refused is what finds the queue full, fits no worker or is beyond all of them, and nothing else."""
        longest = len(spec.prompt) + (spec.max_tokens or 1)
        needs_options = spec.is_constrained or (spec.logprobs, spec.prompt_logprobs) != (None, None)
        able = [w for w in self.workers.values() if w.joined.max_prompt_scores or not needs_options]
        fits = any(longest <= capacity(self.settings, worker.joined) for worker in able)
        beyond = None if fits or not self.workers else "TOO_LONG" if able else "NO_WORKER"
        reason = "QUEUE_FULL" if is_full else beyond
        if [output.reason for output in outputs if isinstance(output, Refused)] != ([reason] if reason else []):
            raise Violation(f"{spec.id} should be refused for {reason}, and {outputs} came of it")
        self.oracle.num_refused += reason is not None

    def _check_findable(self, worker: Worker, pool: PagePool, wrote: "Iterable[Written]", *, is_flush: bool) -> None:
        """I7: a page can be found only once the step that wrote it is acknowledged, under the tokens it holds."""
        content, known = pool._content, self._known[pool]
        self._known[pool] = dict(content)
        lost = [known[page].key for page in known if page not in content]
        if self._next_evicted.get(pool) in pool.cached and not is_flush and not pool._pinned.isdisjoint(lost):
            raise Violation("a pinned page was evicted before others")
        for page, held in content.items():
            if known.get(page) != held and not any(self._holds(row, worker, pool, page, held) for row in wrote):
                raise Violation(f"page {page} can be found and no acknowledged step has just written that into it")

    def _check_published(self, event: Event, wrote: "Iterable[Written]") -> None:
        """A page can be found from the moment on that the step which filled it is acknowledged."""
        worker = self.workers.get(event.worker) if isinstance(event, events.StepDone) else None
        if worker is None or not isinstance(event, events.StepDone) or worker.acked != event.step or worker.full:
            return
        for row in wrote:
            for number in range(row.before // worker.page_size, row.computed // worker.page_size):
                page = row.table[number]
                tokens = tuple(row.tokens[number * worker.page_size : (number + 1) * worker.page_size])
                held = worker.device._content.get(page)
                if worker.device.refs[page] and held is None and tokens not in self._tokens_found(worker):
                    raise Violation(f"page {page} is full and its tokens cannot be found")

    @staticmethod
    def _tokens_found(worker: Worker) -> set[tuple[int, ...]]:
        return {content.tokens for content in worker.device._content.values()}

    def _holds(self, row: "Written", worker: Worker, pool: PagePool, page: int, content: Content) -> bool:
        if row.arrival is not None:
            return row.arrival == (pool, page, content)
        if pool is not worker.device or page not in row.table:
            return False
        first = row.table.index(page) * worker.page_size
        last = first + worker.page_size
        prefix = worker.page_size, tuple(row.tokens[:last])
        if self._prefix_of.setdefault(content.key, prefix) != prefix:
            raise Violation("a prefix is known by the key of another one")
        whose = row.salt.encode() + b"|" + worker.joined.weights_digest
        if self._key_of.setdefault((whose, prefix), content.key) != content.key:
            raise Violation("a prefix is known by two keys")
        return last <= row.computed and prefix[1][first:] == content.tokens

    def _admitted(self, worker: Worker, plan: StepPlan, before: Before, now: float) -> None:
        """I5, I7, I17 at admission."""
        fresh: list[Sequence] = []
        for new in plan.new_slots:
            sequence = new.sequence
            asked = self.oracle.asked[sequence.request.spec.id]
            is_new = sequence in before.waiting
            if worker.state is WorkerState.DRAINING and is_new:
                raise Violation("a draining worker is given a new sequence")
            if any(self._salts.setdefault(key, asked.spec.salt) != asked.spec.salt for key in sequence.keys):
                raise Violation("a prefix is known by the same key under another salt")
            if asked.planned_at is None:
                asked.planned_at, asked.num_cached = now, new.num_computed
                fresh.append(sequence)
            self._overtakes_left.pop(sequence, None)
        if len(self.workers) == 1 and plan.new_slots:
            self._count_overtakes(worker, plan, now)
            self._count_head(worker, plan, now, has_swapped=bool(before.swapped or worker.swapped))
        if self.settings.max_tenant_share < 1 and not any(asked.failures for asked in self.oracle.asked.values()):
            self.fairness.shares(worker)
        if len(self.stays) == 1 and self.settings.max_tenant_share == 1:
            self.fairness.admitted(worker, fresh, self.waiting)

    def _count_head(self, worker: Worker, plan: StepPlan, now: float, *, has_swapped: bool) -> None:
        """I17, with nobody before it: one that has never run, and has waited longest of all, is next but for so many."""
        settings = self.settings
        head = next((s for s in self.waiting if s.longest <= worker.capacity), None)
        asked = self.oracle.asked[head.request.spec.id] if head is not None else None
        is_due = asked is not None and asked.submitted_at <= now - settings.max_wait_seconds
        if head is None or asked is None or not is_due or has_swapped or head.faults or head.lacks_mask:
            self._head = None, 0
            return
        num_passed = sum(not new.sequence.faults for new in plan.new_slots) if asked.planned_at is None else 0
        self._head = head, num_passed + (self._head[1] if self._head[0] is head else 0)
        if self._head[1] > RAISE_EVERY + settings.max_overtakes + worker.joined.max_slots:
            raise Violation(f"{head.request.spec.id} has waited longest, and {self._head[1]} others went first")

    def _count_overtakes(self, worker: Worker, plan: StepPlan, now: float) -> None:
        """I17: once it has waited long enough, a sequence with k others before it starts within a bound of admissions."""
        settings = self.settings
        for before, sequence in enumerate(self.waiting, 1):
            if sequence.faults or sequence.longest > worker.capacity:
                continue
            if len(self.stays) == 1 and sequence.overtaken > settings.max_overtakes:
                raise Violation(f"{sequence.request.spec.id} was passed over {sequence.overtaken} times")
            if sequence.request.arrived_at > now - settings.max_wait_seconds:
                continue
            most = self._overtakes_left.setdefault(
                sequence,
                (before + len(worker.swapped) + len(worker.running)) * (RAISE_EVERY + settings.max_overtakes)
                + worker.joined.max_slots,
            )
            self._overtakes_left[sequence] = most = most - sum(not new.sequence.faults for new in plan.new_slots)
            if most < 0:
                raise Violation(f"{sequence.request.spec.id} was passed over too often")


def capacity(settings: Settings, joined: events.Joined) -> int:
    """Longest sequence, prompt and answer, that a worker may hold."""
    pages = int(joined.device_pages * settings.max_tenant_share)
    return min(joined.max_context, pages * joined.page_size + 1)


def _ended(worker: Worker) -> list[Sequence]:
    """Sequences that have ended with a row in flight."""
    return [s for plan in worker.in_flight for s in plan.rows if s.state is SequenceState.DONE]
