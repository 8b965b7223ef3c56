"""What the core remembers of a request and of its sequences."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from octavo_scheduler.core.states import SEQUENCE_MOVES, RequestState, SequenceMove, SequenceState, move

if TYPE_CHECKING:
    from octavo_scheduler.core.policy import Account
    from octavo_scheduler.core.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is drawn; the same fields travel to the worker."""

    temperature: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class RequestSpec:
    """A validated request, as the front hands it over."""

    id: str
    prompt: tuple[int, ...]
    n: int = 1
    """Branches: answers drawn independently of each other."""
    max_tokens: int | None = None
    """Of each branch. None: as many as the worker that admits it can hold."""
    stop_token_ids: frozenset[int] = frozenset()
    sampling: Sampling = Sampling()
    priority: int = 0
    tenant: str = ""
    salt: str = ""
    """Requests share cached prefixes only under the same salt."""
    deadline: float | None = None
    """Monotonic seconds."""
    queue_deadline: float | None = None
    """Monotonic seconds; when no first row was planned by then the request ends."""
    held: tuple[tuple[int, ...], ...] = ()
    """The beginning of each branch's answer, which goes on after it; nothing at all: all of them are new."""
    ended: frozenset[int] = frozenset()
    """Branches that are whole already, though not all of them: nothing is computed for these."""

    @property
    def trunk(self) -> int:
        """The branch that is computed first; the others fork off from it, unless their beginnings are known."""
        return next(branch for branch in range(self.n) if branch not in self.ended) if self.ended else 0

    def known(self, branch: int) -> tuple[int, ...]:
        """Prompt and beginning of a branch."""
        return self.prompt + self.held[branch] if self.held else self.prompt


class FinishReason(Enum):
    STOP = auto()
    LENGTH = auto()
    CANCELLED = auto()
    DEADLINE = auto()
    FAILED = auto()
    NO_NUMBERS = auto()
    """The model's logits were NaN or infinite."""


@dataclass(eq=False, slots=True)
class Request:
    """A live request. `arrival` counts submissions and orders requests of one priority.

    It has one sequence, the trunk, until its first token is to be sampled; then the other branches fork off.
    """

    spec: RequestSpec
    arrival: int
    arrived_at: float
    account: "Account"
    state: RequestState = RequestState.QUEUED
    started_at: float = 0.0
    is_answered: bool = False
    """A first token is committed."""
    num_cached: int = 0
    """Known tokens whose pages were found when it was admitted first."""
    preemptions: int = 0
    sequences: "list[Sequence]" = field(default_factory=list)

    @property
    def num_unborn(self) -> int:
        """Branches that have not forked off yet."""
        return self.spec.n - len(self.sequences)

    def branch_off(self, upto: int) -> "list[Sequence]":
        """Makes the sequences of further branches, those before `upto`. Returns those that are to be computed."""
        new = [Sequence.of(self, branch) for branch in range(len(self.sequences), upto)]
        self.sequences += new
        for sequence in new:
            if sequence.branch in self.spec.ended:
                sequence.move(SequenceMove.FINISH)
        return [sequence for sequence in new if sequence.state is not SequenceState.DONE]


@dataclass(eq=False, slots=True)
class Sequence:
    """One branch of a request. Its tokens are committed; K and V of the first `computed` of them are in pages.

    Rows in flight run ahead of that: `planned` tokens are computed once all plans sent are done, and `pending` further
    tokens will then be known. No row in flight means planned == computed and pending == 0.
    """

    request: Request
    branch: int
    order: tuple[int, int, int]
    tokens: list[int]
    num_prompt: int
    max_tokens: int | None
    state: SequenceState = SequenceState.WAITING
    worker: "Worker | None" = None
    slot: int = -1
    table: list[int] = field(default_factory=list)
    host_table: list[int] = field(default_factory=list)
    computed: int = 0
    planned: int = 0
    pending: int = 0
    rows_in_flight: int = 0
    last_step: int = 0
    """Last step of its worker whose plan names any of its pages."""
    is_evicting: bool = False
    """Gets no rows until those in flight are done, so that its pages can be had."""
    keys: list[bytes] = field(default_factory=list)
    """Prefix keys: the root's, then one for each full page of `key_page_size` tokens that was asked for."""
    key_page_size: int = 0
    overtaken: int = 0
    num_raised: int = 0
    """How often it went first because it had waited longest of all."""
    faults: int = 0
    """Failed steps since its last committed token. With any, it runs alone in its plan, to find out whose fault it was."""
    failed_on: str = ""
    """The worker that failed last with it; another one is tried first."""

    @classmethod
    def of(cls, request: Request, branch: int) -> "Sequence":
        """A branch that waits, with nothing computed."""
        spec = request.spec
        order = (-spec.priority, request.arrival, branch)
        return cls(request, branch, order, list(spec.known(branch)), len(spec.prompt), spec.max_tokens)

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def uncomputed(self) -> int:
        """Known tokens that no plan has computed yet; 0 when the next token would be one too many."""
        if self.max_tokens is not None and self.num_generated + self.pending >= self.max_tokens:
            return 0
        return len(self.tokens) + self.pending - self.planned

    @property
    def longest(self) -> int:
        """Tokens of prompt and answer together, at most (at least, where the answer has no limit yet)."""
        return len(self.tokens) + 1 if self.max_tokens is None else self.num_prompt + self.max_tokens

    def move(self, by: SequenceMove) -> None:
        self.state = move(SEQUENCE_MOVES, self.state, by)
