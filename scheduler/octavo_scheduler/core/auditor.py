"""The auditor at work in production: one worker's pages at a time, at a steady and small cost.

A page that breaks a law is quarantined: one whose references are counted too low could be handed to a second owner, one
counted too high would never come back. Whoever reads it goes on. Nothing is raised; the findings wait to be logged.
"""

from collections.abc import Collection, Mapping, Sequence

from octavo_scheduler.core.ledger import Table, broken_counts, broken_pages, device_tables, host_tables, references
from octavo_scheduler.core.pages import NULL_PAGE, PagePool
from octavo_scheduler.core.worker import Worker

PAGES_PER_SECOND = 10_000
"""Pages looked at in a second of the service's time, on average."""
LEAST_PAUSE = 1.0
"""Seconds between two looks, at least."""


class Auditor:
    """Looks at one worker's pages about once a second, at one worker after another."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        """One sentence for each violation, until somebody takes them."""
        self._due = 0.0
        self.turn = ""
        """The worker that was looked at last."""

    def tick(self, workers: Mapping[str, Worker], now: float) -> int:
        """Looks at the next worker when it is time. Returns how many violations were found; all are mended."""
        if now < self._due or not workers:
            return 0
        names = sorted(workers)
        self.turn = next((name for name in names if name > self.turn), names[0])
        worker = workers[self.turn]
        steps = [plan.step for plan in worker.in_flight]
        num_pages = worker.device.total + worker.host.total
        self._due = now + max(LEAST_PAUSE, num_pages / PAGES_PER_SECOND)
        found = [f"worker {worker.id}, device {law}" for law in _mend(worker.device, device_tables(worker), steps)]
        found += [f"worker {worker.id}, host {law}" for law in _mend(worker.host, host_tables(worker), steps)]
        self.findings += found
        return len(found)


def _mend(pool: PagePool, tables: Sequence[Table], steps: Collection[int]) -> list[str]:
    """Quarantines what breaks a law, and puts the counts right. Returns what was wrong, once for each page."""
    named = references(tables)
    broken: dict[int, str] = {}
    for page, law in broken_pages(pool, named, steps):
        broken.setdefault(page, law)
    nowhere = broken.pop(NULL_PAGE, None)
    for page, law in broken.items():
        pool.quarantine(page, named[page], law)
    wrong = [] if broken else list(broken_counts(pool, named))
    if broken or wrong:
        pool.recount()
    found = [*pool.complaints, *wrong, *([nowhere] if nowhere else [])]
    pool.complaints.clear()
    return found
