"""In which order waiting sequences are offered to admission.

1. The highest priority class first. (`waiting` lets the oldest sequence of all go before that, now and then.)
2. In a class, what has started and was preempted, by arrival: it is owed its end, and its tokens would be computed again.
3. Then tenants by virtual token counter (VTC, Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024): the
   one that was given least goes first. A counter grows by the prompt tokens to be computed when a request is admitted
   (those found in the prefix cache are free) and by each token of its answer when that is committed, times the token's
   price, divided by the tenant's weight. A tenant that had nothing waiting is lifted to the least counter of those that
   have, so that nobody saves up for later. What is computed again after a preemption is not charged again.
   (With `policy=fcfs` tenants come in order of their oldest requests instead.)
4. Of one tenant, by arrival; but of its first `WARM_BAND` sequences the one with the longest cached prefix goes first.

While two tenants of a class both have requests waiting, what they were given (tokens × price ÷ weight) differs by at most
2 × max(prompt price × longest prompt, answer price × most tokens of admitted sequences), as in the paper; a request that is
passed over because it does not fit, or that is let in before its turn, moves this by its own price at most.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice

from octavo_scheduler.core.prefix import find_page
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.settings import Settings
from octavo_scheduler.core.worker import SequenceQueue, Worker

WARM_BAND = 4
"""A sequence with a cached prefix is preferred to at most so many - 1 older ones of its tenant and class."""
MOST_IDLE_ACCOUNTS = 64
"""Counters of tenants without live requests that a class keeps besides as many as it has live requests."""


@dataclass(eq=False, slots=True)
class Account:
    """What one tenant was given in one class, and which of its requests wait for their first row."""

    tenant: str
    number: int
    prompt_price: float
    """Of one token, divided by the tenant's weight."""
    answer_price: float
    counter: float = 0.0
    num_live: int = 0
    line: SequenceQueue = field(default_factory=SequenceQueue)
    is_listed: bool = False

    def charge_prompt(self, num_tokens: int) -> None:
        self.counter += self.prompt_price * num_tokens


class PriorityClass:
    """The tenants of one class. Size is O(its live requests)."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.is_fair = settings.policy == "fair"
        self.num_live = 0
        self._accounts: dict[str, Account] = {}
        self._num_opened = 0
        self._list: list[tuple[float, int, Account]] = []
        """A heap of the accounts with a line. A key in it may be out of date, but is never too large."""
        self._last: Account | None = None
        """Whose line was the last to become empty."""

    @property
    def num_accounts(self) -> int:
        return len(self._accounts)

    def open(self, tenant: str) -> Account:
        """The account of a request that is live from now on."""
        account = self._accounts.get(tenant)
        if account is None:
            weight = self.settings.tenant_weights.get(tenant, 1.0)
            prices = self.settings.prompt_token_price / weight, self.settings.answer_token_price / weight
            account = self._accounts[tenant] = Account(tenant, self._num_opened, *prices)
            self._num_opened += 1
        account.num_live += 1
        self.num_live += 1
        return account

    def close(self, account: Account) -> None:
        """A request has ended. Idle tenants are forgotten when there are many, those first whom return would lift anyway."""
        account.num_live -= 1
        self.num_live -= 1
        if len(self._accounts) > 2 * self.num_live + MOST_IDLE_ACCOUNTS:
            idle = sorted((a for a in self._accounts.values() if not a.num_live), key=lambda a: (a.counter, a.number))
            for forgotten in idle[: len(idle) - self.num_live - MOST_IDLE_ACCOUNTS // 2]:
                del self._accounts[forgotten.tenant]
            for _, _, gone in [entry for entry in self._list if not entry[2].line]:
                gone.is_listed = False
            self._list = [entry for entry in self._list if entry[2].line]
            heapify(self._list)

    def line_up(self, sequence: Sequence) -> None:
        """A new sequence waits."""
        account = sequence.request.account
        if not account.line:
            account.counter = max(account.counter, self._least())
        account.line.add(sequence)
        if not account.is_listed:
            account.is_listed = True
            heappush(self._list, (self._key(account), account.number, account))

    def leave(self, sequence: Sequence) -> None:
        """A new sequence waits no longer."""
        account = sequence.request.account
        account.line.discard(sequence)
        if not account.line:
            self._last = account

    def _least(self) -> float:
        first = self._first()
        if first is None:
            first = self._last
        return first.counter if first else 0.0

    def _key(self, account: Account) -> float:
        """What the accounts with a line are ordered by. It never gets smaller while they have one."""
        return account.counter if self.is_fair else account.line[0].request.arrival

    def _first(self) -> Account | None:
        """The account with a line whose turn it is."""
        while self._list:
            key, _, account = self._list[0]
            if not account.line:
                heappop(self._list)
                account.is_listed = False
            elif key < self._key(account):
                heapreplace(self._list, (self._key(account), account.number, account))
            else:
                return account
        return None

    def new(self, worker: Worker, most: int, has_share: Callable[[Sequence], bool]) -> list[Sequence]:
        """At most so many new sequences in order, as if each one offered were admitted and charged for its prompt.

        `has_share` says whether the tenant's share of the worker allows for one more sequence.
        """
        offered: list[Sequence] = []
        listed: list[Account] = []
        turns: list[tuple[float, int, int, list[Sequence]]] = []
        while len(offered) < most:
            first = self._first()
            if first is not None and (not turns or (self._key(first), first.number) < turns[0][:2]):
                heappop(self._list)
                listed.append(first)
                if line := self._line(first, worker, most, has_share):
                    heappush(turns, (self._key(first), first.number, 0, line))
                continue
            if not turns:
                break
            key, number, place, line = turns[0]
            sequence = line[place]
            offered.append(sequence)
            if place + 1 == len(line):
                heappop(turns)
                continue
            price = sequence.request.account.prompt_price * len(sequence.tokens)
            following = key + price if self.is_fair else line[place + 1].request.arrival
            heapreplace(turns, (following, number, place + 1, line))
        for account in listed:
            heappush(self._list, (self._key(account), account.number, account))
        return offered

    def _line(
        self, account: Account, worker: Worker, most: int, has_share: Callable[[Sequence], bool]
    ) -> list[Sequence]:
        """The head of a tenant's line, without what this worker cannot hold, the warmest of the first few in front."""
        capacity = worker.capacity
        line: list[Sequence] = []
        for sequence in account.line:
            if sequence.longest > capacity:
                continue
            if len(line) == most or not has_share(sequence):
                break
            line.append(sequence)
        band = line[:WARM_BAND]
        if (
            len(band) > 1
            and self.settings.prefix_cache
            and all(s.overtaken < self.settings.max_overtakes for s in band)
        ):
            warmest = max(band, key=lambda s: warmth(worker, s))
            line.remove(warmest)
            line.insert(0, warmest)
        return line


def warmth(worker: Worker, sequence: Sequence) -> int:
    """Pages of its head that can be found. Looks at few of them: where one is found, those before it are too, as a rule."""
    most = (len(sequence.tokens) - 1) // worker.page_size
    found, missing = 0, 1
    while missing <= most and find_page(worker, sequence, missing - 1) is not None:
        found, missing = missing, 2 * missing
    missing = min(missing, most + 1)
    while missing - found > 1:
        middle = (found + missing) // 2
        if find_page(worker, sequence, middle - 1) is None:
            missing = middle
        else:
            found = middle
    return found


def jumped_by(worker: Worker, sequence: Sequence, started: Container[Sequence] = ()) -> list[Sequence]:
    """The older ones of its tenant and class that a new sequence, just admitted by the worker, was preferred to.

    Those without a mask were not: they could not start.
    `started`: those that are thought to have left the line, too.
    """
    capacity = worker.capacity
    left = (s for s in sequence.request.account.line if s.longest <= capacity and s not in started)
    return [other for other in islice(left, WARM_BAND) if other.order < sequence.order and not other.lacks_mask]
