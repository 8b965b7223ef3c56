"""What the core says about one request becomes the events of its stream.

A request has n branches; each is an answer of its own, with its own text, stop strings and end. The stream begins once
and ends once, when all branches have ended.

A client that resumes an answer holds its beginning. The same outputs are taken for it, from the first token on, so that
text, stop strings and counts are those of the whole answer; only what the client holds is not said again.
"""

import time
from dataclasses import dataclass

from octavo_scheduler import errors
from octavo_scheduler.core.events import NO_PAIR, Committed, Finished, Output, Refused, Scored, Started
from octavo_scheduler.core.request import FinishReason
from octavo_scheduler.model import ServedModel
from octavo_scheduler.requests import Parsed
from octavo_scheduler.stops import StopScanner
from octavo_scheduler.tokens import Detokenizer

RESUME = "options.scheduling.resume_from"
NO_NUMBERS = (
    "the model's logits for this request are not numbers (NaN or infinite), so no token can be drawn; with float16, try "
    "--dtype bfloat16 or float32"
)

NO_MASK = "what may come next in this answer cannot be said: its constraint is too complex to follow within the limits"


@dataclass(frozen=True)
class Begin:
    """First event of a stream."""

    prompt_tokens: int
    cached_tokens: int
    queued: float
    seed: int = 0


@dataclass(frozen=True)
class Piece:
    """Text and tokens to append to a branch's answer. One without tokens is what the branch held back until its end."""

    branch: int
    text: str
    tokens: tuple[int, ...]
    first_index: int
    logprobs: bytes = b""
    """Of these tokens, as in core.events.Committed."""


@dataclass(frozen=True)
class PromptPiece:
    """Log-probabilities of prompt tokens, as in core.events.Scored; the first token of all has none, and so no token."""

    first_index: int
    logprobs: bytes


@dataclass(frozen=True)
class BranchEnd:
    """How a branch ended. `stop` or `stop_token` say what matched."""

    reason: FinishReason
    stop: str | None
    stop_token: int | None


@dataclass(frozen=True, kw_only=True)
class End:
    """Last event of a stream. `branches` are all n, in order; `completion_tokens` counts those of all of them."""

    branches: tuple[BranchEnd, ...]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queued: float
    first_token_seconds: float
    total_seconds: float
    preemptions: int


Event = Begin | PromptPiece | Piece | End

LONG_LOGPROBS = 4 << 10
"""Bytes of log-probabilities that are worth a message, whatever interval the client wants."""


@dataclass(frozen=True)
class Cut:
    """A stop string was found: the branch ends after `at` tokens, which the core must be told."""

    branch: int
    at: int


class Branch:
    """One answer as it grows: tokens to text, stop strings."""

    def __init__(self, number: int, model: ServedModel, parsed: Parsed) -> None:
        self.number = number
        self.num_tokens = 0
        self.end: BranchEnd | None = None
        self._parsed = parsed
        self._detokenizer = Detokenizer(
            model.vocabulary, parsed.spec.prompt, skip_special_tokens=parsed.skip_special_tokens
        )
        self._stops = StopScanner(parsed.stops, include=parsed.include_stop)
        self._stop: str | None = None
        self._num_held = len(parsed.spec.held[number]) if parsed.spec.held else 0
        """Tokens that the client has already."""
        self._num_shown = self._num_held
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[bytes] = []
        self._last_token: int | None = None
        self._rest = ""

    def add(self, token: int, logprobs: bytes = b"") -> Cut | None:
        """Takes a token; a cut where it completes a stop string. After that nothing more is taken."""
        if self._stop is not None:
            return None
        self.num_tokens += 1
        self._last_token = token
        is_silent = token in self._parsed.spec.stop_token_ids and not self._parsed.include_stop
        text = "" if is_silent else self._push(token)
        if self.num_tokens > self._num_held:
            self._text.append(text)
            self._tokens.append(token)
            self._logprobs.append(logprobs)
        return None if self._stop is None else Cut(self.number, self.num_tokens)

    def _push(self, token: int) -> str:
        is_early = self.num_tokens < self._parsed.min_tokens
        text, self._stop = self._stops.push(self._detokenizer.push(token), is_early=is_early)
        return text

    def reached(self, most_tokens: int) -> Finished | None:
        """How the branch ended, if its tokens alone say so. `most_tokens`: of an answer without a limit of its own."""
        spec = self._parsed.spec
        reason = None
        if self._stop is not None or self._last_token in spec.stop_token_ids:
            reason = FinishReason.STOP
        elif self.num_tokens >= (spec.max_tokens or most_tokens):
            reason = FinishReason.LENGTH
        if reason is None or self.end is not None:
            return None
        stop_token = self._last_token if self._stop is None and reason is FinishReason.STOP else None
        return Finished(spec.id, self.number, reason, self.num_tokens, 0, stop_token)

    def finish(self, finished: Finished) -> None:
        """The core has ended the branch. Raises RequestError for an end that is an error."""
        if self._stop is None:
            _raise_failures(finished.reason)
        if self.num_tokens < self._num_held:
            raise errors.InvalidRequest("resume_from goes on after the end of the answer", field=RESUME)
        if self._stop is None:
            rest, self._stop = self._stops.push(self._detokenizer.flush())
            self._rest = rest + self._stops.flush()
        if self._stop is None:
            self.end = BranchEnd(finished.reason, None, finished.stop_token)
        else:
            self.end = BranchEnd(FinishReason.STOP, self._stop, None)

    def pieces(self) -> list[Piece]:
        """What came since the last piece, if it is worth a message: at the end, or when enough tokens are there."""
        text, tokens, logprobs = "".join(self._text), tuple(self._tokens), b"".join(self._logprobs)
        is_long = len(logprobs) >= LONG_LOGPROBS
        if len(tokens) < (self._parsed.stream_interval if self.end is None and not is_long else 1):
            return self._last_piece()
        piece = Piece(self.number, text, tokens, self._num_shown, logprobs)
        self._num_shown += len(tokens)
        self._text, self._tokens, self._logprobs = [], [], []
        return [piece, *self._last_piece()]

    def _last_piece(self) -> list[Piece]:
        """What was held back, once the end has made it certain. By itself, so that whoever resumes can tell it apart."""
        rest, self._rest = self._rest, ""
        return [Piece(self.number, rest, (), self._num_shown)] if rest else []


class Answer:
    """All branches of one request, and its timings."""

    def __init__(self, model: ServedModel, parsed: Parsed) -> None:
        self.is_ended = False
        self._cuts: list[Cut] = []
        self._branches = [Branch(number, model, parsed) for number in range(parsed.spec.n)]
        self._spec = parsed.spec
        self._num_prompt = len(parsed.spec.prompt)
        self._room = model.max_context - self._num_prompt
        self._has_begun = False
        self._arrived_at = time.monotonic()
        self._first_token_at: float | None = None
        self._queued = 0.0
        self._cached = 0
        self._preemptions = 0

    def take(self, outputs: list[Output]) -> list[Event]:
        """The events that these outputs make. Raises RequestError for an end that is an error."""
        has_started = False
        events: list[Event] = []
        for output in outputs:
            match output:
                case Started():
                    self._queued, self._cached, has_started = output.queued, output.cached, True
                case Scored():
                    events.append(self._prompt_piece(output))
                case Committed():
                    self._add(output)
                case Finished():
                    self._preemptions = max(self._preemptions, output.preemptions)
                    self._branches[output.branch].finish(output)
                case Refused():
                    raise _refusal(output)
        events += [piece for branch in self._branches for piece in branch.pieces()]
        ends = tuple(branch.end for branch in self._branches if branch.end is not None)
        if len(ends) == len(self._branches):
            self.is_ended = True
            events.append(self._end(ends))
        if not self._has_begun and (has_started or events):
            self._has_begun = True
            events.insert(0, Begin(self._num_prompt, self._cached, self._queued, self._spec.sampling.seed))
        return events

    def reached_ends(self) -> list[Finished]:
        """Of the branches that are whole by the tokens they have, which what is known of a resumed answer may be."""
        return [end for branch in self._branches if (end := branch.reached(self._room)) is not None]

    def take_cuts(self) -> list[Cut]:
        """What the core must be told: each cut once, but none of a branch that has ended meanwhile."""
        cuts, self._cuts = self._cuts, []
        return [cut for cut in cuts if self._branches[cut.branch].end is None]

    def _add(self, committed: Committed) -> None:
        if self._first_token_at is None:
            self._first_token_at = time.monotonic()
        cut = self._branches[committed.branch].add(committed.token, committed.logprobs)
        if cut is not None:
            self._cuts.append(cut)

    def _prompt_piece(self, scored: Scored) -> PromptPiece:
        if scored.first > 1:
            return PromptPiece(scored.first, scored.logprobs)
        return PromptPiece(0, NO_PAIR * (1 + (self._spec.prompt_logprobs or 0)) + scored.logprobs)

    def _end(self, ends: tuple[BranchEnd, ...]) -> End:
        now = time.monotonic()
        return End(
            branches=ends,
            prompt_tokens=self._num_prompt,
            cached_tokens=self._cached,
            completion_tokens=sum(branch.num_tokens for branch in self._branches),
            queued=self._queued,
            first_token_seconds=(self._first_token_at or now) - self._arrived_at,
            total_seconds=now - self._arrived_at,
            preemptions=self._preemptions,
        )


def _refusal(refused: Refused) -> errors.RequestError:
    if refused.reason == "QUEUE_FULL":
        wait = "" if refused.retry_after is None else f"; try again in about {refused.retry_after:.1f} s"
        return errors.Overloaded(refused.message + wait, refused.retry_after, reason=refused.reason)
    kinds = {"NO_WORKER": errors.Unavailable, "STOPPED": errors.Unavailable}
    return kinds.get(refused.reason, errors.InvalidRequest)(refused.message, reason=refused.reason)


def _raise_failures(reason: FinishReason) -> None:
    if reason is FinishReason.DEADLINE:
        raise errors.DeadlineExceeded("the request ran out of time")
    if reason is FinishReason.FAILED:
        raise errors.RequestFailed("the workers could not compute this request")
    if reason is FinishReason.NO_MEMORY:
        raise errors.NoMemory("the workers have not the memory to compute this request")
    if reason is FinishReason.NO_NUMBERS:
        raise errors.RequestFailed(NO_NUMBERS, reason=reason.name)
    if reason is FinishReason.NO_MASK:
        raise errors.InvalidRequest(NO_MASK, field="options.constraint", reason=reason.name)
