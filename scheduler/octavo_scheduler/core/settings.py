"""What an operator may choose about scheduling."""

from dataclasses import dataclass
from typing import Literal

PreemptMode = Literal["auto", "swap", "drop"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Read once at start. Lengths are in tokens."""

    max_num_seqs: int = 256
    """Most sequences running on one worker; the worker's own slots bound it too."""
    max_step_tokens: int = 512
    """Token budget of one step; the worker's own limit bounds it too."""
    max_chunk: int | None = None
    """Most tokens of one row in one step; None: the whole budget."""
    preempt: PreemptMode = "auto"
    """How victims give up their pages. Swap falls back to drop when the host tier is full."""
    prefix_cache: bool = True
    """Keep full pages of ended sequences and share them with sequences that begin alike."""
    plans_in_flight: int = 2
    """Plans a worker may have unanswered: with 2 the next step is planned while one runs."""
    max_overtakes: int = 32
    """Admissions that may pass over a waiting sequence that did not fit; then nobody passes it any more."""
    max_queued_requests: int = 4096
    """Requests waiting for their first row; more are refused."""
    max_faults: int = 3
    """Failed steps before a sequence is given up: the first may have been anybody's, those after it were its own alone."""
    max_nacks: int = 4
    """Steps that a worker may fail in a row before it is sent away."""
    copy_bytes_per_second: float = 8e9
    """Device-host copy rate assumed until a worker measures its own."""
    prefill_tokens_per_second: float = 2000.0
    """Prefill rate assumed until a worker measures its own."""

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_step_tokens", "max_queued_requests", "max_faults"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_chunk is not None and self.max_chunk < 1:
            raise ValueError(f"max_chunk must be at least 1, not {self.max_chunk}")
        if self.plans_in_flight not in (1, 2):
            raise ValueError(f"plans_in_flight must be 1 or 2, not {self.plans_in_flight}")
        if self.preempt not in ("auto", "swap", "drop"):
            raise ValueError(f"preempt must be auto, swap or drop, not {self.preempt}")
