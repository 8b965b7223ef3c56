"""One step of one worker, as columns. `wire` turns it into bytes."""

from dataclasses import dataclass, field
from typing import NamedTuple

from octavo_scheduler.core.events import PAIR_BYTES
from octavo_scheduler.core.pages import Content, PagePool
from octavo_scheduler.core.request import NO_BIASES, Biases, Sequence
from octavo_scheduler.core.states import SequenceState


@dataclass(slots=True)
class StepPlan:
    """A delta against the worker's slots. Lists of one group run in parallel."""

    worker: str
    step: int
    full: bool = False
    made_at: float = 0.0
    """Stays in the core."""
    freed_slots: list[int] = field(default_factory=list)
    swap_out: list[tuple[int, int]] = field(default_factory=list)
    """(device page, host page)"""
    swap_in: list[tuple[int, int]] = field(default_factory=list)
    """(host page, device page)"""
    copy: list[tuple[int, int]] = field(default_factory=list)
    """(device page, device page)"""
    zero: list[int] = field(default_factory=list)
    new_slots: list["NewSlot"] = field(default_factory=list)
    growth: list["Growth"] = field(default_factory=list)
    """Each slot once."""
    forks: list["Fork"] = field(default_factory=list)
    """In the order of the rows that they are sampled from."""
    row_slots: list[int] = field(default_factory=list)
    row_tokens: list[int] = field(default_factory=list)
    row_samples: list[int] = field(default_factory=list)
    """Tokens sampled from the row: none, its own, or its own and those of its forks."""
    scored: list[tuple[Sequence, int]] = field(default_factory=list)
    """Whose tokens, and at which places of their histories, have their log-probabilities told."""
    num_best: int = 0
    """Most likely tokens that are told with each of these."""
    constrained: list["Constrained"] = field(default_factory=list)
    """Rows whose samples are drawn from masks."""
    masks: list[bytes] | None = None
    """Of these rows. None: not all of them are known yet, and they follow."""
    arrivals: list["Arrival"] = field(default_factory=list)
    """What can be found once the plan is done; stays in the core, like `rows`."""
    rows: list[Sequence] = field(default_factory=list)
    """The sequences of the rows."""

    @property
    def logprob_bytes(self) -> int:
        """Of all that its result tells."""
        return len(self.scored) * PAIR_BYTES * (1 + self.num_best)

    @property
    def lacks_masks(self) -> bool:
        """Whether the worker waits for them, or will."""
        return self.masks is None and bool(self.constrained)

    def find_masks(self) -> bool:
        """Whether they are all known now. A sample for which nobody waits any more may be any token."""
        masks: list[bytes] = []
        for row in self.constrained:
            if (mask := row.mask) is None:
                return False
            masks.append(mask)
        size = max(map(len, masks), default=0)
        self.masks = [mask or b"\xff" * size for mask in masks]
        return True

    @property
    def is_empty(self) -> bool:
        return not (self.row_slots or self.swap_out or self.swap_in or self.freed_slots or self.full)


@dataclass(frozen=True, slots=True)
class NewSlot:
    """A slot that starts: its history (a copy), and how much of it is already in its pages."""

    slot: int
    sequence: Sequence
    tokens: tuple[int, ...]
    num_computed: int
    biases: Biases = NO_BIASES


class Constrained(NamedTuple):
    """A row that samples from what a mask allows."""

    place: int
    """Among the rows."""
    sequence: Sequence
    position: int
    """Of its sample in the answer."""

    @property
    def mask(self) -> bytes | None:
        """None: not known yet. Empty: nobody waits for the sample."""
        position, mask = self.sequence.request.masks.get(self.sequence.branch, (-1, b""))
        if position == self.position:
            return mask
        return b"" if self.sequence.state is SequenceState.DONE else None


class Arrival(NamedTuple):
    """A page that the plan fills with known content from another tier."""

    pool: PagePool
    page: int
    content: Content


class Growth(NamedTuple):
    """Pages added at the end of a slot's table, after its last `num_dropped` pages were taken off."""

    slot: int
    num_dropped: int
    pages: list[int]


class Fork(NamedTuple):
    """A slot copied from another before the rows run; its first token is sampled from the other's row."""

    source: int
    target: int
    sequence: Sequence
