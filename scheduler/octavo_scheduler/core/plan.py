"""One step of one worker, as columns. `wire` turns it into bytes."""

from dataclasses import dataclass, field

from octavo_scheduler.core.request import Sequence


@dataclass(slots=True)
class StepPlan:
    """A delta against the worker's slots. Lists of one group run in parallel."""

    worker: str
    step: int
    full: bool = False
    freed_slots: list[int] = field(default_factory=list)
    swap_out: list[tuple[int, int]] = field(default_factory=list)
    """(device page, host page)"""
    swap_in: list[tuple[int, int]] = field(default_factory=list)
    """(host page, device page)"""
    zero: list[int] = field(default_factory=list)
    new_slots: list["NewSlot"] = field(default_factory=list)
    growth: list[tuple[int, list[int]]] = field(default_factory=list)
    """(slot, pages added at the end of its table), each slot once"""
    row_slots: list[int] = field(default_factory=list)
    row_tokens: list[int] = field(default_factory=list)
    row_samples: list[bool] = field(default_factory=list)
    rows: list[Sequence] = field(default_factory=list)
    """The sequences of the rows; stays in the core."""

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
