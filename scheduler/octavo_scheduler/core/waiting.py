"""Everything that waits: who is offered to admission, how much may wait, and how long it is likely to take.

No sequence starves. Of `RAISE_EVERY` admissions one goes to the sequence that has been waiting longest of all, whatever its
class and tenant, if its request came more than `max_wait_seconds` ago. It is then offered first until it fits, and after
`max_overtakes` admissions that passed it over because it did not fit, nobody passes it. So a sequence with k others in
front of it in the order of waiting, or running (they may be preempted, and then go first once), starts, once it has waited
that long, after at most (k + 1) × (RAISE_EVERY + max_overtakes) further admissions, each of which ends in finite time.
"""

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge

from octavo_scheduler.core.pace import Pace
from octavo_scheduler.core.policy import Account, PriorityClass
from octavo_scheduler.core.request import RequestSpec, Sequence
from octavo_scheduler.core.settings import Settings
from octavo_scheduler.core.states import RequestState, WorkerState
from octavo_scheduler.core.worker import SequenceQueue, Worker

ADMISSION_WINDOW = 64
"""Waiting sequences looked at in one step."""
RAISE_EVERY = 8


@dataclass(slots=True)
class Load:
    """Requests that wait for their first row, and the tokens that they have to compute for it."""

    requests: int = 0
    tokens: int = 0

    def add(self, spec: RequestSpec, sign: int) -> None:
        self.requests += sign
        self.tokens += sign * len(spec.known(spec.trunk))


def is_new(sequence: Sequence) -> bool:
    """Whether nothing of its request was ever planned. Branches fork off while the first row is being planned."""
    return sequence.request.state is RequestState.QUEUED and sequence.branch == sequence.request.spec.trunk


class Waiting:
    """Size is O(live requests). Iterating gives those first that have been waiting longest."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.queued = Load()
        self.queued_of: dict[str, Load] = {}
        """By tenant; only those that have any."""
        self.num_free = 0
        """Those that are not constrained."""
        self.pace = Pace()
        self._started = SequenceQueue()
        self._all: OrderedDict[Sequence, None] = OrderedDict()
        self._classes: dict[int, PriorityClass] = {}
        self._ranks: list[int] = []
        """Priorities of the classes with live requests, negated, in order."""
        self._num_since_raised = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._all)

    @property
    def num_accounts(self) -> int:
        """Counters kept, those of idle tenants too."""
        return sum(group.num_accounts for group in self._classes.values())

    def open(self, spec: RequestSpec) -> Account:
        """The account of a request that is live from now on."""
        if spec.priority not in self._classes:
            self._classes[spec.priority] = PriorityClass(self.settings)
            insort(self._ranks, -spec.priority)
        return self._classes[spec.priority].open(spec.tenant)

    def close(self, spec: RequestSpec, account: Account) -> None:
        """That request has ended."""
        self._classes[spec.priority].close(account)
        if not self._classes[spec.priority].num_live:
            del self._classes[spec.priority]
            del self._ranks[bisect_left(self._ranks, -spec.priority)]

    def add(self, sequence: Sequence) -> None:
        self._all[sequence] = None
        spec = sequence.request.spec
        self.num_free += not spec.is_constrained
        if is_new(sequence):
            self._classes[spec.priority].line_up(sequence)
            self._count(spec, 1)
        else:
            self._started.add(sequence)

    def discard(self, sequence: Sequence) -> None:
        del self._all[sequence]
        spec = sequence.request.spec
        self.num_free -= not spec.is_constrained
        if is_new(sequence):
            self._classes[spec.priority].leave(sequence)
            self._count(spec, -1)
        else:
            self._started.discard(sequence)

    def _count(self, spec: RequestSpec, sign: int) -> None:
        self.queued.add(spec, sign)
        load = self.queued_of.setdefault(spec.tenant, Load())
        load.add(spec, sign)
        if not load.requests:
            del self.queued_of[spec.tenant]

    def admitted(self, sequence: Sequence, now: float, *, is_raised: bool) -> None:
        """It has its first row, or has one again. `is_raised`: it was offered first because it was the `oldest`."""
        self._num_since_raised = 0 if is_raised else self._num_since_raised + 1
        sequence.num_raised += is_raised
        if is_new(sequence):
            sequence.request.account.charge_prompt(len(sequence.tokens) - sequence.request.num_cached)
            self.pace.note(len(sequence.tokens), now)

    def overflow(self, spec: RequestSpec) -> str | None:
        """Why one more request is too many. An empty queue takes a request of any length."""
        s = self.settings
        caps = (
            ("", self.queued, s.max_queued_requests, s.max_queued_tokens),
            (
                " of this tenant",
                self.queued_of.get(spec.tenant, Load()),
                s.max_tenant_queued_requests,
                s.max_tenant_queued_tokens,
            ),
        )
        for whose, load, most_requests, most_tokens in caps:
            if most_requests is not None and load.requests >= most_requests:
                return f"{load.requests} requests{whose} are waiting already, which is the limit"
            new_tokens = len(spec.known(spec.trunk))
            if most_tokens is not None and load.requests and load.tokens + new_tokens > most_tokens:
                return (
                    f"{load.tokens} prompt tokens{whose} are waiting already; {new_tokens} more would be above the "
                    f"limit of {most_tokens}"
                )
        return None

    def seconds(self, now: float) -> float:
        """How long what is queued now will take to start, if it goes on as it did lately."""
        return self.pace.seconds(self.queued.tokens, now)

    def candidates(
        self, worker: Worker, raised: Sequence | None, has_share: Callable[[Sequence], bool]
    ) -> list[Sequence]:
        """At most ADMISSION_WINDOW, in order, new ones only of tenants whose share of the worker allows for them.

        `raised`, which `oldest` found, goes first. A draining worker takes back what it swapped out and nothing else.
        """
        if worker.state is not WorkerState.READY:
            return list(worker.swapped)
        found = [raised] if raised else []
        back = deque(self.returning(worker))
        for rank in self._ranks:
            while back and back[0].order[0] == rank:
                found.append(back.popleft())
            if len(found) < ADMISSION_WINDOW:
                found += self._classes[-rank].new(worker, ADMISSION_WINDOW - len(found), has_share)
            if len(found) >= ADMISSION_WINDOW:
                break
        return list(dict.fromkeys(found[:ADMISSION_WINDOW]))

    def returning(self, worker: Worker) -> list[Sequence]:
        """Those of all classes, in order, that have started and could go on here."""
        if worker.state is not WorkerState.READY:
            return list(worker.swapped)
        capacity = worker.capacity
        dropped = (s for s in self._started if s.longest <= capacity)
        return list(merge(worker.swapped, dropped, key=lambda s: s.order))

    def oldest(self, worker: Worker, now: float) -> Sequence | None:
        """The sequence that has waited longest, if it is its turn and it has waited long enough."""
        if self._num_since_raised < RAISE_EVERY - 1 or worker.state is not WorkerState.READY:
            return None
        capacity = worker.capacity
        arrived_by = now - self.settings.max_wait_seconds
        oldest = next((s for s in self._all if s.longest <= capacity or s.request.arrived_at > arrived_by), None)
        both = [s for s in (oldest, *worker.swapped) if s is not None and s.request.arrived_at <= arrived_by]
        # Whoever went first once, and was preempted again, lets the others go first once.
        return min(both, key=lambda s: (s.num_raised, s.request.arrival, s.branch), default=None)
