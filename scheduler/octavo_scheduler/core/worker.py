"""What the core remembers of a worker: its two page pools, its slots, its sequences, its plans in flight."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo_scheduler.core.appetite import Appetite
from octavo_scheduler.core.events import Joined
from octavo_scheduler.core.pages import PagePool
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import Request, Sequence
from octavo_scheduler.core.settings import Settings
from octavo_scheduler.core.states import WORKER_MOVES, WorkerMove, WorkerState, move


def _order(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.order


@dataclass(slots=True)
class Utilisation:
    """Token slots in held device pages, and how many of them hold a token, summed over steps."""

    filled: int = 0
    held: int = 0

    @property
    def share(self) -> float:
        return self.filled / self.held if self.held else 0.0


class SequenceQueue(list[Sequence]):
    """Sequences by priority, arrival and branch. Every change keeps the order."""

    def add(self, sequence: Sequence) -> None:
        insort(self, sequence, key=_order)

    def discard(self, sequence: Sequence) -> None:
        place = bisect_left(self, sequence.order, key=_order)
        assert self[place] is sequence, "a sequence must be in the queue of its state"
        del self[place]


@dataclass(eq=False)
class Worker:
    """Owned by the core. Its pools change here and in `draft`, `tiers`, `core` and `auditor`."""

    joined: Joined
    settings: Settings
    state: WorkerState = WorkerState.JOINING
    step: int = 0
    acked: int = 0
    full: bool = False
    in_flight: deque[StepPlan] = field(default_factory=deque)
    running: SequenceQueue = field(default_factory=SequenceQueue)
    swapped: SequenceQueue = field(default_factory=SequenceQueue)
    freed_slots: list[int] = field(default_factory=list)
    answered_at: float = 0.0
    step_seconds: float = 0.0
    """What the last step took."""
    num_nacks: int = 0
    """Failed steps since the last good one."""
    masks_may_follow: bool = False
    """Of the plan that is made: masks may follow it, as only constrained sequences would wait for them."""
    was_alone: bool = False
    """The last plan belonged to one suspect."""
    reserve: int = 0
    """Pages that admission leaves alone for now, since sequences were preempted lately (see `backoff`)."""
    held_tokens: int = 0
    shared_gaps: dict[int, int] = field(default_factory=dict)
    """Pages that forks shared while they were not full, and how many of their token slots are empty."""
    num_swaps: int = 0
    num_drops: int = 0
    utilisation: Utilisation = field(default_factory=Utilisation)
    saturated: Utilisation = field(default_factory=Utilisation)

    def __post_init__(self) -> None:
        self.id = self.joined.worker
        self.page_size = self.joined.page_size
        self.device = PagePool(self.joined.device_pages)
        self.host = PagePool(self.joined.host_pages)
        self.appetite = Appetite(min(self.settings.max_step_tokens, self.joined.max_step_tokens))
        num_slots = min(self.settings.max_num_seqs, self.joined.max_slots, self.budget)
        self.free_slots = list(range(num_slots - 1, -1, -1))
        self.copy_rate = self.joined.copy_bytes_per_second or self.settings.copy_bytes_per_second
        self.prefill_rate = self.joined.prefill_tokens_per_second or self.settings.prefill_tokens_per_second

    def note_rates(self, copy_rate: float, prefill_rate: float) -> None:
        """Newly measured speeds; 0 where there is none."""
        self.copy_rate = copy_rate or self.copy_rate
        self.prefill_rate = prefill_rate or self.prefill_rate

    def note_answer(self, now: float) -> None:
        """The oldest plan in flight is done."""
        self.step_seconds = self._seconds(now)
        self.acked = self.in_flight.popleft().step
        self.answered_at = now

    def answers_in(self, now: float) -> float:
        """Seconds until the oldest plan in flight is done, about: what the last one took, or what it has taken already."""
        return max(self.step_seconds, self._seconds(now))

    def _seconds(self, now: float) -> float:
        """What the oldest plan in flight has taken so far, from when it was made or the one before it was answered."""
        return now - max(self.in_flight[0].made_at, self.answered_at)

    def move(self, by: WorkerMove) -> None:
        self.state = move(WORKER_MOVES, self.state, by)

    def num_pages(self, num_tokens: int) -> int:
        """Pages that hold `num_tokens`."""
        return -(-num_tokens // self.page_size)

    @property
    def capacity(self) -> int:
        """Longest sequence, prompt and answer. The last token of an answer needs no slot: it is never an input."""
        return min(self.joined.max_context, self.tenant_pages * self.page_size + 1)

    @property
    def knows_options(self) -> bool:
        """Whether it can bias logits and tell log-probabilities."""
        return self.joined.max_prompt_scores > 0

    @property
    def budget(self) -> int:
        """Tokens of one step."""
        return self.appetite.budget

    @property
    def has_work(self) -> bool:
        """Whether a plan may have something to say even if nobody waits."""
        return bool(self.running or self.swapped or self.freed_slots or self.full)

    @property
    def tenant_pages(self) -> int:
        """Most pages that the running sequences of one tenant may come to need."""
        return int(self.device.num_usable * self.settings.max_tenant_share)

    @property
    def room(self) -> int:
        """Pages to be had beyond what running sequences still need for known tokens, less one page for each to grow into."""
        promised = sum(self.num_pages(len(s.tokens) + s.pending) - len(s.table) + 1 for s in self.running)
        return self.device.num_available - promised

    @property
    def filled_slots(self) -> int:
        """Token slots of held device pages that hold a token. What several sequences share counts once."""
        gaps = sum(max(self.device.refs[page] - 1, 0) * gap for page, gap in self.shared_gaps.items())
        return self.held_tokens - self.device.num_extra_refs * self.page_size + gaps

    def open_plan(self) -> StepPlan | None:
        """The first plan that was sent without masks, if they are all known now."""
        for plan in self.in_flight:
            if plan.lacks_masks:
                return plan if plan.find_masks() else None
        return None

    def is_gathering(self, rows: Iterable[Sequence]) -> bool:
        """Whether these rows are all constrained, and others that run here sit out.

        Then they wait for those: masks of one step come together, and a step for all takes little longer than one for some.
        Rows that stopped waiting for each other would take turns ever after.
        """
        return all(sequence.request.spec.is_constrained for sequence in rows) and any(
            sequence.sits_out and not (sequence.is_long_enough or sequence.faults) for sequence in self.running
        )

    def can_fork(self, request: Request) -> bool:
        """Whether its branches fork here. Those whose beginnings are known differ from the start, and wait instead."""
        return self.joined.can_fork and not request.spec.held

    def share_table(self, sequence: Sequence) -> None:
        """One more reference to all pages of a running sequence, the last of which may not be full."""
        self.device.share(sequence.table)
        for page in sequence.table:
            self.shared_gaps.pop(page, None)  # of an earlier use of the page
        if gap := -sequence.planned % self.page_size:
            self.shared_gaps[sequence.table[-1]] = gap

    def shares_last_page(self, sequence: Sequence) -> bool:
        """Whether the sequence's next token would be written into a page that another sequence holds too."""
        return sequence.planned % self.page_size > 0 and self.device.refs[sequence.table[-1]] > 1

    def forget_gaps(self) -> None:
        """Of pages that one sequence holds by now, or none."""
        if self.shared_gaps:
            self.shared_gaps = {page: gap for page, gap in self.shared_gaps.items() if self.device.refs[page] > 1}

    def fence(self, sequence: Sequence) -> int | None:
        """The step whose result frees the sequence's pages, or None when no plan in flight names them."""
        return sequence.last_step if sequence.last_step > self.acked else None

    def release(self, sequence: Sequence) -> None:
        """Takes slot and pages of both tiers from a sequence that stops running or lying here."""
        until = self.fence(sequence)
        if sequence.slot >= 0:
            self.running.discard(sequence)
            self.held_tokens -= sequence.planned
            self.give_up_slot(sequence)
        else:
            self.swapped.discard(sequence)
        self.device.give_back(sequence.table, until)
        self.host.give_back(sequence.host_table, until)
        sequence.table = []
        sequence.host_table = []
        sequence.worker = None
        sequence.computed = sequence.planned = sequence.pending = 0
        sequence.max_tokens = sequence.request.spec.max_tokens
        sequence.is_evicting = False

    def give_up_slot(self, sequence: Sequence) -> None:
        """The slot may be named again in the very next plan: freed slots come before new ones."""
        self.freed_slots.append(sequence.slot)
        self.free_slots.append(sequence.slot)
        sequence.slot = -1
