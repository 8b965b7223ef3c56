"""The auditor at work in production: one worker's pages at a time, at a steady and small cost.

A page that breaks a law is quarantined: one whose references are counted too low could be handed to a second owner, one
counted too high would never come back. Nothing is raised; the findings wait to be logged.

A page counted too low may have had a second owner already, who wrote it. Then nothing that the worker holds is trusted: its
caches are emptied, and its sequences are to be computed again from their tokens.
"""

from collections.abc import Collection, Mapping, Sequence

from octavo_scheduler.core.counters import Counters
from octavo_scheduler.core.ledger import Table, broken_counts, broken_pages, device_tables, host_tables, references
from octavo_scheduler.core.pages import NULL_PAGE, PagePool
from octavo_scheduler.core.worker import Worker

PAGES_PER_SECOND = 10_000
"""Pages looked at in a second of the service's time, on average."""
LEAST_PAUSE = 1.0
"""Seconds between two looks, at least."""


class Auditor:
    """Looks at one worker's pages about once a second, at one worker after another."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.findings: list[str] = []
        """One sentence for each violation, until somebody takes them."""
        self.turn = ""
        """The worker that was looked at last."""
        self.due = 0.0
        """When the next one is."""

    def tick(self, workers: Mapping[str, Worker], now: float) -> Worker | None:
        """Looks at the next worker when it is time, and mends it. Returns it if its sequences are to be computed again."""
        if now < self.due or not workers:
            return None
        names = sorted(workers)
        self.turn = next((name for name in names if name > self.turn), names[0])
        worker = workers[self.turn]
        self.due = now + max(LEAST_PAUSE, (worker.device.total + worker.host.total) / PAGES_PER_SECOND)
        steps = [plan.step for plan in worker.in_flight]
        num_doubtful = 0
        tiers = ("device", worker.device, device_tables(worker)), ("host", worker.host, host_tables(worker))
        for tier, pool, tables in tiers:
            found, low = _mend(pool, tables, steps)
            num_doubtful += low
            self.counters.audit_violations += len(found)
            self.findings += [f"worker {worker.id}, {tier} {law}" for law in found]
        if not num_doubtful:
            return None
        worker.device.flush()
        worker.host.flush()
        return worker


def _mend(pool: PagePool, tables: Sequence[Table], steps: Collection[int]) -> tuple[list[str], int]:
    """Quarantines what breaks a law, and puts the counts right.

    Returns what was wrong, once for each page, and how many pages were counted too low.
    """
    named = references(pool, tables)
    broken: dict[int, str] = {}
    for page, law in broken_pages(pool, named, steps):
        broken.setdefault(page, law)
    nowhere = broken.pop(NULL_PAGE, None)
    num_low = sum(pool.refs[page] < named[page] for page in broken)
    pool.quarantine({page: (named[page], law) for page, law in broken.items()})
    wrong = [] if broken else list(broken_counts(pool, named))
    if broken or wrong:
        pool.recount()
    found = [*pool.complaints, *wrong, *([nowhere] if nowhere else [])]
    pool.complaints.clear()
    return found, num_low
