"""What planning promises beyond safety: that nobody waits, moves or goes without for nothing.

A mistake here spoils no answer; it only makes it late.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from octavo_scheduler.core import Core, backoff, placement
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.policy import warmth
from octavo_scheduler.core.prefix import find_page, find_prefix
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceState, WorkerState
from octavo_scheduler.core.worker import Worker

MOST_PLANS_EVICTING = 12
"""Plans for which a sequence may get no row, until those in flight are done: others have their turns, too."""
MOST_RETURNS = 3
"""How often a worker may start again what it let go to another one that did not take it."""


@dataclass(frozen=True)
class Before:
    """What a plan finds."""

    running: list[Sequence]
    swapped: list[Sequence]
    waiting: list[Sequence]
    reserve: int
    without_mask: list[tuple[Sequence, bool]]
    """Running sequences that need a mask for a token that they lack; and whether the token before it is in flight."""
    has_free_row: bool
    """Some row could be planned that needs no mask."""
    behind_evicting: int
    """Tokens not yet computed of the one that is to move."""

    @classmethod
    def of(cls, core: Core, worker: Worker) -> "Before":
        return cls(
            list(worker.running),
            list(worker.swapped),
            list(core.waiting),
            worker.reserve,
            [(s, s.pending > 0) for s in worker.running if s.lacks_mask and not (s.is_long_enough or s.faults)],
            any(
                s.uncomputed and not (s.faults or s.request.spec.is_constrained or (s.is_evicting and s.rows_in_flight))
                for s in worker.running
            ),
            sum(len(s.tokens) - s.computed for s in worker.running if s.is_evicting),
        )


def load_of(worker: Worker) -> int:
    """Tokens that are not computed yet, and the share of each sequence."""
    behind = sum(len(s.tokens) - s.computed for s in worker.running)
    return behind + placement.ROW_TOKENS * (len(worker.running) + len(worker.swapped))


def lets_in(worker: Worker, s: Sequence) -> bool:
    """Whether there is room for its tokens and, beside others, for what admission wants to stay free."""
    beside = backoff.margin(worker, s) if worker.running else 0
    return worker.room >= worker.num_pages(len(s.tokens)) + beside


class Diligence:
    """Looks at a worker before and after a plan of it is made."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._evicting: Counter[Sequence] = Counter()
        self._let_go: dict[Sequence, Worker] = {}
        self._returns: Counter[Sequence] = Counter()

    def broken(self, worker: Worker, before: Before, plan: StepPlan | None, now: float) -> Iterator[str]:
        is_suspects_own = plan is not None and plan.rows != [] and plan.rows[0].faults > 0
        if not is_suspects_own:
            yield from self._idle(worker, before, plan)
        yield from self._moves(worker, before, now)
        if plan is None:
            return
        for new in plan.new_slots:
            s = new.sequence
            self._returns[s] += self._let_go.pop(s, None) is worker
            if self._returns[s] > MOST_RETURNS:
                yield f"{s.request.spec.id} is let go time and again, and nobody else takes it"
        yield from self._gathering(worker, before, plan)
        yield from self._keys(worker, before, plan)
        yield from self._evictions(worker)
        if any(worker.device.refs[page] < 2 for page in worker.shared_gaps):
            yield "gaps are kept of pages that nobody shares"

    def _idle(self, worker: Worker, before: Before, plan: StepPlan | None) -> Iterator[str]:
        """While nothing is scarce: if all that waits fits beside all that runs, up to its last token, nobody waits."""
        settings = self.core.settings
        is_alone = len(self.core.workers) == 1 and worker.state is WorkerState.READY and settings.max_tenant_share == 1
        is_short = before.reserve or before.swapped or any(s.state is not SequenceState.RUNNING for s in before.running)
        num_planned = sum(plan.row_tokens) if plan is not None else 0
        if not is_alone or is_short or not worker.free_slots or num_planned >= worker.budget:
            return
        waiting = [s for s in before.waiting if s.state is SequenceState.WAITING]
        grown = sum(worker.num_pages(s.longest) - len(s.table) + 1 for s in worker.running)
        grown += max(0, len(waiting) - 1)  # whom one plan admits leave a page between them
        for s in waiting:
            shared = sum(
                hit.pool is worker.device and worker.device.refs[hit.page] > 0 for hit in find_prefix(worker, s)
            )
            grown += (worker.num_pages(s.longest) + (s.request.spec.n > 1)) * (1 + s.request.num_unborn) - shared
        if grown > worker.device.num_available:
            return
        for s in waiting:
            is_fit = s.longest <= worker.capacity and placement.serves(worker, s)
            if is_fit and not (s.faults or s.lacks_mask):
                yield f"{s.request.spec.id} waits, though there is room for everybody"

    def _moves(self, worker: Worker, before: Before, now: float) -> Iterator[str]:
        """A sequence goes to another worker only while nobody waits, and the one that it leaves stays the fuller one."""
        moved = [
            s for s in (*before.running, *before.swapped) if s.state is SequenceState.WAITING and s.deferred_at == now
        ]
        if moved and (len(moved) > 1 or any(s.state is SequenceState.WAITING for s in before.waiting)):
            yield f"{moved[0].request.spec.id} is moved while others wait"
        if moved and self.core.settings.preempt == "swap":
            yield "a sequence is computed anew elsewhere although swap was demanded"
        for s in moved:
            self._let_go[s] = worker
            self._evicting.pop(s, None)
            if s.max_tokens is not None and s.max_tokens - s.num_generated < placement.ROW_TOKENS:
                yield f"{s.request.spec.id} is moved for its last few tokens"
            others = self.core.others(worker)
            least = min((len(other.running) for other in others), default=0)
            if s in before.running and (before.swapped or len(worker.running) <= least + 1):
                yield f"{s.request.spec.id} is moved to a worker that will be as full"
            here = load_of(worker) + placement.ROW_TOKENS + before.behind_evicting
            gained = here - min(map(load_of, others), default=0)
            if s in before.running and gained <= 2 * (len(s.tokens) + placement.ROW_TOKENS):
                yield f"{s.request.spec.id} is moved though the load is spread evenly enough"
            if not any(lets_in(other, s) for other in others):
                yield f"{s.request.spec.id} is let go, and no other worker would let it in"

    @staticmethod
    def _gathering(worker: Worker, before: Before, plan: StepPlan) -> Iterator[str]:
        """Where only constrained rows run, they wait for each other."""
        rows = [s for s in plan.rows if s in before.running]
        if not rows or before.has_free_row or plan.rows[0].faults:
            return
        for s, is_pending in before.without_mask:
            if s in worker.running and not (is_pending and worker.masks_may_follow):
                yield f"constrained rows do not wait for that of {s.request.spec.id}"

    @staticmethod
    def _keys(worker: Worker, before: Before, plan: StepPlan) -> Iterator[str]:
        """What is known of pages is not worked out again; and a head that can be found counts as warm."""
        trunks = {s.slot: s for s in plan.rows}
        for fork in plan.forks:
            if trunks[fork.source].keys and not fork.sequence.keys:
                yield f"a branch of {fork.sequence.request.spec.id} knows no keys of the pages that it shares"
        for s in before.waiting[:1]:
            pages = range((len(s.tokens) - 1) // worker.page_size)
            is_whole = worker.settings.prefix_cache and all(find_page(worker, s, number) for number in pages)
            if is_whole and warmth(worker, s) != len(pages):
                yield f"all of {s.request.spec.id} can be found, and {warmth(worker, s)} pages count as warm"

    def _evictions(self, worker: Worker) -> Iterator[str]:
        for s in worker.running:
            self._evicting[s] = self._evicting[s] + 1 if s.is_evicting else 0
            if self._evicting[s] > MOST_PLANS_EVICTING:
                yield f"{s.request.spec.id} goes without a row for {self._evicting[s]} plans"

    def ended(self, sequences: list[Sequence]) -> None:
        for s in sequences:
            for known in (self._evicting, self._let_go, self._returns):
                known.pop(s, None)
