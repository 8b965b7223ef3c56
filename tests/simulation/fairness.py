"""Who is passed over, who is lifted, who is sent away until when: what policy promises, counted independently of it."""

from collections import Counter
from collections.abc import Iterable
from copy import copy

from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Output, Refused
from octavo_scheduler.core.pace import LONGEST_WAIT, PERIOD, SHORTEST_WAIT
from octavo_scheduler.core.request import RequestSpec, Sequence
from octavo_scheduler.core.waiting import is_new
from octavo_scheduler.core.worker import Worker

from tests.simulation.violation import Violation


class Fairness:
    """Looks at a core before and after it is told something."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._passed: Counter[Sequence] = Counter()
        self._estimated_at: float | None = None

    def least_given(self, spec: RequestSpec) -> float | None:
        """The least counter in the request's class of those with a line; None if its own tenant has one already."""
        group = self.core.waiting._classes.get(spec.priority)
        accounts = list(group._accounts.values()) if group is not None else []
        if any(account.tenant == spec.tenant and account.line for account in accounts):
            return None
        return min((account.counter for account in accounts if account.line), default=None)

    def submitted(self, spec: RequestSpec, least: float | None, outputs: Iterable[Output], now: float) -> None:
        request = self.core.requests.get(spec.id)
        if request is not None and least is not None and request.account.counter < least:
            raise Violation(f"the tenant of {spec.id} comes back and was given less than everybody who waits")
        for output in outputs:
            seconds = output.retry_after if isinstance(output, Refused) else None
            if seconds is not None and not SHORTEST_WAIT <= seconds <= LONGEST_WAIT:
                raise Violation(f"{spec.id} shall come back in {seconds} s")
        pace = self.core.waiting.pace
        if pace.rate < 0:
            raise Violation("the queue moves backwards")
        for num_tokens in (0, self.core.waiting.queued.tokens):
            seconds = copy(pace).seconds(num_tokens, now)
            if not SHORTEST_WAIT <= seconds <= LONGEST_WAIT:
                raise Violation(f"whoever is turned away now shall come back in {seconds} s")
        if self._estimated_at is not None and pace.since is not None and 0 < pace.since - self._estimated_at < PERIOD:
            raise Violation("how fast the queue moves is estimated too often")
        self._estimated_at = pace.since

    def admitted(self, worker: Worker, fresh: list[Sequence], waiting: Iterable[Sequence]) -> None:
        """With one worker and no shares a fresh sequence goes before older ones of its tenant so many times at most."""
        for sequence in fresh:
            self._passed.pop(sequence, None)
        for other in waiting:
            if other in fresh or other.faults or not is_new(other) or other.longest > worker.capacity:
                continue
            if other.lacks_mask:
                continue
            self._passed[other] += sum(
                new.request.account is other.request.account and other.order < new.order for new in fresh
            )
            if self._passed[other] > self.core.settings.max_overtakes:
                raise Violation(
                    f"{other.request.spec.id} was passed over {self._passed[other]} times by its own tenant"
                )

    def shares(self, worker: Worker) -> None:
        """While no step failed: a tenant's running sequences fit its share at their longest, or are all of one request."""
        most = int(worker.device.total * self.core.settings.max_tenant_share)
        pages: Counter[str] = Counter()
        requests: dict[str, set[str]] = {}
        for sequence in worker.running:
            spec = sequence.request.spec
            pages[spec.tenant] += worker.num_pages(sequence.longest - 1) * (1 + sequence.request.num_unborn)
            requests.setdefault(spec.tenant, set()).add(spec.id)
        for tenant, ids in requests.items():
            if len(ids) > 1 and pages[tenant] > most:
                raise Violation(f"tenant {tenant} may come to need {pages[tenant]} pages of {worker.id} and has {most}")

    def ended(self, sequences: Iterable[Sequence]) -> None:
        for sequence in sequences:
            self._passed.pop(sequence, None)
