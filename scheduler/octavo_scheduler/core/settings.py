"""What an operator may choose about scheduling."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

PreemptMode = Literal["auto", "swap", "drop"]
PolicyName = Literal["fair", "fcfs"]

AT_LEAST_ONE = (
    "max_num_seqs",
    "max_step_tokens",
    "max_chunk",
    "max_queued_requests",
    "max_queued_tokens",
    "max_tenant_queued_requests",
    "max_tenant_queued_tokens",
    "max_faults",
    "max_nacks",
)
NOT_NEGATIVE = ("max_overtakes", "readmit_growth", "max_wait_seconds", "prompt_token_price", "answer_token_price")


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
    policy: PolicyName = "fair"
    """Within a priority class: fair shares between tenants, or first come, first served."""
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    """Shares of tenants in proportion to each other; 1 for those not named."""
    prompt_token_price: float = 1.0
    answer_token_price: float = 2.0
    """What a tenant is charged for a token computed."""
    max_wait_seconds: float = 30.0
    """After this time a waiting request may go before higher classes, one in a few admissions."""
    max_overtakes: int = 32
    """Admissions that may pass over a waiting sequence that did not fit; then nobody passes it any more."""
    readmit_growth: int = 64
    """Tokens that a preempted sequence shall have room for, besides those known, when it comes back."""
    max_reserve_share: float = 0.25
    """Largest share of a worker's pages that admission leaves alone after preemptions; 0: it never backs off."""
    max_queued_requests: int = 4096
    """Requests waiting for their first row; more are refused."""
    max_queued_tokens: int = 1 << 21
    """Prompt tokens of requests waiting for their first row; more are refused."""
    max_tenant_queued_requests: int | None = None
    max_tenant_queued_tokens: int | None = None
    """The same for each tenant; None: no limit of its own."""
    max_tenant_share: float = 1.0
    """Largest share of a worker's pages that the running sequences of one tenant may come to need."""
    max_faults: int = 3
    """Failed steps before a sequence is given up: the first may have been anybody's, those after it were its own alone."""
    max_nacks: int = 4
    """Steps that a worker may fail in a row before it is sent away."""
    copy_bytes_per_second: float = 8e9
    """Device-host copy rate assumed until a worker measures its own."""
    prefill_tokens_per_second: float = 2000.0
    """Prefill rate assumed until a worker measures its own."""

    def __post_init__(self) -> None:
        for name in AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if not 0 <= self.max_reserve_share < 1:
            raise ValueError(f"max_reserve_share must lie in [0, 1), not {self.max_reserve_share}")
        for name in NOT_NEGATIVE:
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(f"{name} must not be negative, and finite, not {getattr(self, name)}")
        for name in ("copy_bytes_per_second", "prefill_tokens_per_second"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} must be above 0 and finite, not {getattr(self, name)}")
        if not 0 < self.max_tenant_share <= 1:
            raise ValueError(f"max_tenant_share must lie in (0, 1], not {self.max_tenant_share}")
        for tenant, weight in self.tenant_weights.items():
            if not 0 < weight < inf:
                raise ValueError(f"the weight of tenant {tenant!r} must be above 0, not {weight}")
        if self.policy not in ("fair", "fcfs"):
            raise ValueError(f"policy must be fair or fcfs, not {self.policy}")
        if self.plans_in_flight not in (1, 2):
            raise ValueError(f"plans_in_flight must be 1 or 2, not {self.plans_in_flight}")
        if self.preempt not in ("auto", "swap", "drop"):
            raise ValueError(f"preempt must be auto, swap or drop, not {self.preempt}")
