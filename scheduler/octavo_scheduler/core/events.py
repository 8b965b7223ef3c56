"""What the core is told (events) and what it says to the front (outputs). Plain frozen records."""

from dataclasses import dataclass
from typing import NamedTuple

from octavo_scheduler.core.request import FinishReason


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A worker said a Hello that fits; its pool is empty."""

    worker: str
    page_size: int
    page_bytes: int
    device_pages: int
    host_pages: int
    max_slots: int
    max_step_tokens: int
    max_context: int
    vocab_size: int
    weights_digest: bytes = b""
    needs_zeroed_pages: bool = False
    can_fork: bool = True
    """Older workers cannot take pages off a table, which a branch needs that copies a page before it writes."""
    kernels: str = ""
    kv_dtype: str = ""
    copy_bytes_per_second: float = 0.0
    prefill_tokens_per_second: float = 0.0


@dataclass(frozen=True)
class Lost:
    """A worker is gone, with everything it held. `is_crash`: what it was computing may have been the cause."""

    worker: str
    is_crash: bool = True


@dataclass(frozen=True)
class Drain:
    """A worker shall get no new sequences."""

    worker: str


@dataclass(frozen=True)
class Resume:
    """A draining worker takes new sequences again."""

    worker: str


NO_TOKEN = -1
"""In place of a token: none can be drawn, as the logits are no numbers."""


@dataclass(frozen=True)
class StepDone:
    """A worker finished a step: one token for each sample, or NO_TOKEN, in the plan's order."""

    worker: str
    step: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Nack:
    """A worker could not do a step and waits for a full plan."""

    worker: str
    step: int


@dataclass(frozen=True)
class Rates:
    """Measured speeds of a worker: swap copies in bytes/s, prefill in tokens/s."""

    worker: str
    copy_bytes_per_second: float
    prefill_tokens_per_second: float


@dataclass(frozen=True)
class Flush:
    """Forget all cached prefixes."""


@dataclass(frozen=True, kw_only=True)
class Pin:
    """Pages that hold these tokens under this salt shall be evicted last. Takes the place of a pin of the same name."""

    name: str
    tokens: tuple[int, ...]
    salt: str = ""


@dataclass(frozen=True)
class Unpin:
    """The pin of this name, if there is one, is no more."""

    name: str


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = Joined | Lost | Drain | Resume | StepDone | Nack | Rates | Flush | Pin | Unpin | Tick


class Started(NamedTuple):
    """The first row of a request was computed; `queued` seconds after its arrival it was planned.

    `cached` tokens of its prompt were found in the prefix cache.
    """

    request: str
    queued: float
    cached: int


class Committed(NamedTuple):
    """A token of a branch is committed; `position` counts the branch's answer from 0."""

    request: str
    branch: int
    position: int
    token: int


class Finished(NamedTuple):
    """A branch ended; nothing of it follows. `num_tokens` of its answer count."""

    request: str
    branch: int
    reason: FinishReason
    num_tokens: int
    preemptions: int
    stop_token: int | None = None


class Refused(NamedTuple):
    """A request was not accepted; nothing follows. `message` has the numbers.

    `retry_after`: seconds after which it may well be accepted, for a queue that is full.
    """

    request: str
    reason: str
    message: str
    retry_after: float | None = None


Output = Started | Committed | Finished | Refused
