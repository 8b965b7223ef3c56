from collections import Counter

from octavo_scheduler.core import Settings
from octavo_scheduler.core.page_map import PageState, Tier, holders, page_states, runs
from octavo_scheduler.core.worker import Worker

from tests.doubles.paper_worker import PaperWorker
from tests.doubles.table_top import TableTop
from tests.scheduler.core.test_random_walk import walk


def swapped_pages(worker: Worker, tier: Tier) -> set[int]:
    moves = [("out", *pair) for plan in worker.in_flight for pair in plan.swap_out]
    moves += [("in", *pair) for plan in worker.in_flight for pair in plan.swap_in]
    return {b if (tier is Tier.DEVICE) == (way == "in") else a for way, a, b in moves}


def check(table: TableTop, seen: Counter[PageState]) -> None:
    """The map says of each page what the pool's own numbers say of all."""
    for worker in table.core.workers.values():
        for tier, pool in ((Tier.DEVICE, worker.device), (Tier.HOST, worker.host)):
            states = page_states(worker, tier)
            assert len(states) == pool.total
            seen.update(states)
            swapping = swapped_pages(worker, tier)
            assert {page for page, state in enumerate(states, 1) if state is PageState.SWAPPING} == swapping
            kinds = Counter(
                state if page not in swapping else resting(worker, tier, page) for page, state in enumerate(states, 1)
            )
            assert kinds[PageState.FREE] == pool.num_free
            assert kinds[PageState.CACHED] == pool.num_cached
            assert kinds[PageState.FENCED] == pool.num_fenced
            assert kinds[PageState.HELD] + kinds[PageState.SHARED] == pool.num_held
            tables = Counter(page for _, pages in holders(worker, tier) for page in pages)
            shared = {page for page, state in enumerate(states, 1) if state is PageState.SHARED}
            assert shared == {page for page, count in tables.items() if count > 1} - swapping
            assert [state for state, count in runs(states) for _ in range(count)] == states


def resting(worker: Worker, tier: Tier, page: int) -> PageState:
    """What a page would be if no swap named it."""
    pool = worker.device if tier is Tier.DEVICE else worker.host
    if pool.refs[page]:
        return PageState.HELD
    if page in pool.cached or page in pool.kept:
        return PageState.CACHED
    return PageState.FREE if page in pool.free else PageState.FENCED


class Watched(TableTop):
    """Looks at the map after every event."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.seen: Counter[PageState] = Counter()
        super().__init__(settings)

    def _audit(self) -> None:
        super()._audit()
        check(self, self.seen)


def test_after_every_event_of_any_history_the_map_agrees_with_the_pools() -> None:
    seen: Counter[PageState] = Counter()
    for seed in range(20):
        table = walk(seed, num_events=300, kind=Watched)
        assert isinstance(table, Watched)
        seen += table.seen
    assert set(seen) == set(PageState) - {PageState.QUARANTINED}, "every state that a sound core knows was seen"


def test_a_quarantined_page_is_shown_as_such_while_it_is_still_in_a_table() -> None:
    table = TableTop(w=PaperWorker(pages=8))
    table.submit("r", [1, 2, 3, 4, 5], 8)
    table.turn()
    worker = table.core.workers["w"]
    page = worker.running[0].table[0]
    worker.device.quarantine({page: (1, "for the test")})
    assert page_states(worker, Tier.DEVICE)[page - 1] is PageState.QUARANTINED
    assert runs(page_states(worker, Tier.DEVICE))[0] == (PageState.QUARANTINED, 1)
