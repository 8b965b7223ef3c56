"""What the core remembers of a request and of its sequences."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from octavo_scheduler.core.states import SEQUENCE_MOVES, RequestState, SequenceMove, SequenceState, move

if TYPE_CHECKING:
    from octavo_scheduler.core.policy import Account
    from octavo_scheduler.core.worker import Worker


ALWAYS = (1 << 31) - 1


@dataclass(frozen=True, kw_only=True)
class Biases:
    """What is added to logits, in columns. A bias holds until so many tokens are answered.

    It is added only where the answer ends with the tokens of the `context` biases before it; -1: never.
    """

    tokens: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    until: tuple[int, ...] = ()
    contexts: tuple[int, ...] = ()


NO_BIASES = Biases()


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
    biases: Biases = NO_BIASES


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
    logprobs: int | None = None
    """Most likely tokens that are told with each token, and their log-probabilities. None: not even the token's own is."""
    prompt_logprobs: int | None = None
    """The same for the tokens of the prompt."""
    num_scored: int = 0
    """Prompt tokens of which that is known already."""
    is_constrained: bool = False
    """Each token is drawn from a mask, which comes as an event and without which no token is drawn."""

    @property
    def needs_options(self) -> bool:
        """Whether workers of before protocol 1.2 cannot serve it."""
        is_told = self.logprobs is not None or self.prompt_logprobs is not None
        return is_told or self.is_constrained or self.sampling.biases != NO_BIASES

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
    NO_MEMORY = auto()
    """Its steps ran out of memory, however small they were."""
    NO_MASK = auto()
    """Of a constrained answer nobody can say what may come next."""


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
    num_scored: int = 1
    """Prompt tokens whose log-probabilities are told, if they are asked for; the first has none."""
    sequences: "list[Sequence]" = field(default_factory=list)
    masks: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Of a constrained request, for each branch: the latest position whose mask is known, and that mask."""

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
    deferred_at: float | None = None
    """When a worker first left it to one that would have it computed sooner, since it waits."""
    num_raised: int = 0
    """How often it went first because it had waited longest of all."""
    faults: int = 0
    """Failed steps since its last committed token. With any, it runs alone in its plan, to find out whose fault it was."""
    failed_on: str = ""
    """The worker that failed last with it; another one is tried first."""
    is_scored: bool = False
    """Log-probabilities of its tokens are asked for."""

    @classmethod
    def of(cls, request: Request, branch: int) -> "Sequence":
        """A branch that waits, with nothing computed."""
        spec = request.spec
        order = (-spec.priority, request.arrival, branch)
        tokens, is_scored = list(spec.known(branch)), spec.logprobs is not None or spec.prompt_logprobs is not None
        return cls(request, branch, order, tokens, len(spec.prompt), spec.max_tokens, is_scored=is_scored)

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def is_long_enough(self) -> bool:
        """Whether the next token would be one too many."""
        return self.max_tokens is not None and self.num_generated + self.pending >= self.max_tokens

    @property
    def uncomputed(self) -> int:
        """Known tokens that no plan has computed yet; 0 when the next token would be one too many, or lacks its mask.

        Asked for each row of each step, so that calls count.
        """
        if self.max_tokens is not None and self.num_generated + self.pending >= self.max_tokens:
            return 0
        if self.request.spec.is_constrained and self.sits_out:
            return 0
        return len(self.tokens) + self.pending - self.planned

    @property
    def lacks_mask(self) -> bool:
        """Whether it is constrained and what may come next is not known, which takes all tokens before it."""
        if not self.request.spec.is_constrained:
            return False
        known = self.request.masks.get(self.branch)
        return known is None or known[0] != self.num_generated + self.pending

    @property
    def sits_out(self) -> bool:
        """Whether it lacks its mask and gets no row before that is there. It does while its last token is in flight where
        masks may follow their plan."""
        if not self.lacks_mask:
            return False
        return not (self.pending and self.worker is not None and self.worker.masks_may_follow)

    @property
    def longest(self) -> int:
        """Tokens of prompt and answer together, at most (at least, where the answer has no limit yet)."""
        return len(self.tokens) + 1 if self.max_tokens is None else self.num_prompt + self.max_tokens

    @property
    def scores_prompt(self) -> bool:
        """Whether it has prompt tokens to tell log-probabilities of. Once for all branches is enough."""
        spec, request = self.request.spec, self.request
        is_asked = self.is_scored and spec.prompt_logprobs is not None and self.branch == spec.trunk
        return is_asked and request.num_scored < self.num_prompt

    @property
    def most_found(self) -> int:
        """Tokens whose pages may be found instead of computed: all but the last, or those before what is to be scored."""
        return self.request.num_scored - 1 if self.scores_prompt else len(self.tokens) - 1

    def prompt_scores(self, first: int, num_tokens: int) -> range:
        """Places of prompt tokens whose log-probabilities a row of tokens from the one at `first` on leads to."""
        if not self.scores_prompt:
            return range(0)
        return range(max(self.request.num_scored, first + 1), min(self.num_prompt, first + num_tokens + 1))

    def cut_row(self, first: int, num_tokens: int, num_scores: int) -> int:
        """Tokens of such a row where it may have at most `num_scores` of these; one token is always possible."""
        scores = self.prompt_scores(first, num_tokens)
        return num_tokens if len(scores) <= num_scores else max(scores[0] - 1 - first + num_scores, 1)

    def move(self, by: SequenceMove) -> None:
        self.state = move(SEQUENCE_MOVES, self.state, by)
