"""What the core is told (events) and what it says to the front (outputs). Plain frozen records."""

from dataclasses import dataclass
from functools import partial
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
    max_prompt_scores: int = 0
    """Prompt tokens of a step whose log-probabilities it tells; 0: an older worker, which knows neither biases nor masks."""
    takes_late_masks: bool = False
    """Masks may follow their plan."""
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


PAIR_BYTES = 8
"""Of a token, int32, and its log-probability, float32, little-endian."""
NO_PAIR = b"\xff\xff\xff\xff" + b"\x00\x00\x80\xff"
"""In place of a token and its log-probability: -1 and minus infinity."""
NO_TOKEN = -1
"""In place of a token: none can be drawn, as the logits are no numbers."""


@dataclass(frozen=True)
class StepDone:
    """A worker finished a step: one token for each sample, or NO_TOKEN, in the plan's order.

    `logprobs` has, for each token that the plan asks it for, `num_best` + 1 pairs of a token and its log-probability, which
    the core does not look into.
    """

    worker: str
    step: int
    tokens: tuple[int, ...]
    logprobs: bytes = b""


@dataclass(frozen=True)
class Nack:
    """A worker could not do a step and waits for a full plan. `is_memory`: there was not enough of it."""

    worker: str
    step: int
    is_memory: bool = False


@dataclass(frozen=True)
class Masked:
    """Which tokens may come at this position of a constrained branch: `mask` as it travels to the workers.

    None: nobody can say, so the request cannot go on. What comes late, twice or out of order does no harm.
    """

    request: str
    branch: int
    position: int
    mask: bytes | None = None


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


Event = Joined | Lost | Drain | Resume | StepDone | Masked | Nack | Rates | Flush | Pin | Unpin | Tick


class Started(NamedTuple):
    """The first row of a request was computed; `queued` seconds after its arrival it was planned.

    `cached` tokens of its prompt were found in the prefix cache.
    """

    request: str
    queued: float
    cached: int


class Scored(NamedTuple):
    """Log-probabilities of prompt tokens from the one at `first` on: PAIR_BYTES * (1 + those asked for) bytes each."""

    request: str
    first: int
    logprobs: bytes


class Committed(NamedTuple):
    """A token of a branch is committed; `position` counts the branch's answer from 0.

    `logprobs`: its own and those of the most likely ones, if the request asks for them.
    """

    request: str
    branch: int
    position: int
    token: int
    logprobs: bytes = b""


committed = partial(tuple.__new__, Committed)
"""Committed of a tuple, at half the price of its constructor."""


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


Output = Started | Scored | Committed | Finished | Refused
