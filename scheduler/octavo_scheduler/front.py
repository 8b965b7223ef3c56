"""The asyncio side of the scheduler: streams of answers, fed by the loop's thread.

One `call_soon_threadsafe` per step brings all outputs; each is put into the stream of its request. What a reader has not
taken yet is coalesced into one piece. A stream that is left before its end aborts its request, which frees its pages.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from octavo_scheduler import errors
from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Committed, Finished, Output, Refused, Started
from octavo_scheduler.core.request import FinishReason
from octavo_scheduler.limits import MAX_REQUEST_SECONDS
from octavo_scheduler.model import ServedModel
from octavo_scheduler.requests import Arrival, Parsed
from octavo_scheduler.stops import StopScanner
from octavo_scheduler.tokens import Detokenizer

Post = Callable[[Callable[[Core, float], list[Output]]], None]


@dataclass(frozen=True)
class Begin:
    """First event of an answer."""

    prompt_tokens: int
    cached_tokens: int
    queued: float


@dataclass(frozen=True)
class Piece:
    """Text and tokens to append."""

    text: str
    tokens: tuple[int, ...]
    first_index: int


@dataclass(frozen=True, kw_only=True)
class End:
    """Last event of an answer. `stop` or `stop_token` say what matched."""

    reason: FinishReason
    stop: str | None
    stop_token: int | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queued: float
    first_token_seconds: float
    total_seconds: float
    preemptions: int


Event = Begin | Piece | End


@dataclass(eq=False)
class Inbox:
    """What the core said about one request and its reader has not taken yet. `label`: what the client calls the request."""

    label: str
    outputs: list[Output] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, output: Output) -> None:
        self.outputs.append(output)
        self.arrived.set()

    async def take(self) -> list[Output]:
        await self.arrived.wait()
        self.arrived.clear()
        outputs, self.outputs = self.outputs, []
        return outputs


class Front:
    """Streams of one scheduler. All methods but `deliver` run in the event loop."""

    def __init__(self, model: ServedModel, post: Post) -> None:
        self.model = model
        self.is_draining = False
        self.inboxes: dict[str, Inbox] = {}
        self._post = post
        self._event_loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._idle.set()

    def deliver(self, outputs: list[Output]) -> None:
        """Called by the loop's thread, once a step."""
        self._event_loop.call_soon_threadsafe(self._put, outputs)

    def _put(self, outputs: list[Output]) -> None:
        for output in outputs:
            inbox = self.inboxes.get(output.request)
            if inbox is not None:
                inbox.put(output)

    async def drain(self, grace: float) -> None:
        """Refuses new requests and waits until the running ones have ended, at most `grace` seconds."""
        self.is_draining = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace)
        for request, inbox in self.inboxes.items():
            inbox.put(Refused(request, "STOPPED", "the scheduler stopped before the answer was complete"))

    def labels(self) -> dict[str, str]:
        """What clients call the requests that are alive, by id. Not all of them are known to the core already, or still."""
        return {request: inbox.label for request, inbox in self.inboxes.items()}

    def arrival(self, time_remaining: float | None) -> Arrival:
        """Id, seed and deadline of a request that arrives now. Raises Unavailable while draining."""
        if self.is_draining:
            raise errors.Unavailable("the scheduler is shutting down")
        seconds = MAX_REQUEST_SECONDS if time_remaining is None else min(time_remaining, MAX_REQUEST_SECONDS)
        return Arrival(id=secrets.token_hex(16), seed=secrets.randbits(64), deadline=time.monotonic() + seconds)

    async def stream(self, parsed: Parsed) -> AsyncIterator[Event]:
        """Begin, pieces, End. Raises RequestError where the request cannot be served."""
        spec = parsed.spec
        inbox = self.inboxes[spec.id] = Inbox(parsed.label)
        self._idle.clear()
        answer = Answer(self.model, parsed)
        try:
            self._post(lambda core, now: core.submit(spec, now))
            while not answer.is_ended:
                for event in answer.take(await inbox.take()):
                    yield event
                if answer.stop is not None and not answer.is_ended:
                    self._abort(spec.id, at=answer.num_tokens)
        finally:
            del self.inboxes[spec.id]
            if not self.inboxes:
                self._idle.set()
            if not answer.is_ended:
                self._abort(spec.id)

    def _abort(self, request: str, at: int | None = None) -> None:
        self._post(lambda core, now: core.abort(request, now, at))


class Answer:
    """One answer as it grows: tokens to text, stop strings, timings."""

    def __init__(self, model: ServedModel, parsed: Parsed) -> None:
        self._parsed = parsed
        self._detokenizer = Detokenizer(model.vocabulary, skip_special_tokens=parsed.skip_special_tokens)
        self._stops = StopScanner(parsed.stops, include=parsed.include_stop)
        self._arrived_at = time.monotonic()
        self._first_token_at: float | None = None
        self._queued = 0.0
        self._cached = 0
        self._num_shown = 0
        self._text: list[str] = []
        self._tokens: list[int] = []
        self.num_tokens = 0
        self.stop: str | None = None
        """The stop string that was found; then the core is told so, and its word that the request ended is awaited."""
        self.is_ended = False

    def take(self, outputs: list[Output]) -> list[Event]:
        """The events that these outputs make. Raises RequestError for an end that is an error."""
        events: list[Event] = []
        for output in outputs:
            match output:
                case Started():
                    self._queued, self._cached = output.queued, output.cached
                    events.append(Begin(len(self._parsed.spec.prompt), output.cached, output.queued))
                case Committed() if self.stop is None:
                    self._add(output.token)
                case Finished():
                    self.is_ended = True
                    events += self._end(output)
                case Refused():
                    self.is_ended = output.reason != "STOPPED"
                    raise _refusal(output)
        if not self.is_ended and len(self._tokens) >= self._parsed.stream_interval:
            events += self._piece()
        return events

    def _add(self, token: int) -> None:
        if self._first_token_at is None:
            self._first_token_at = time.monotonic()
        self.num_tokens += 1
        self._tokens.append(token)
        if token in self._parsed.spec.stop_token_ids and not self._parsed.include_stop:
            return
        text, self.stop = self._stops.push(self._detokenizer.push(token))
        self._text.append(text)

    def _piece(self) -> list[Event]:
        text, tokens = "".join(self._text), tuple(self._tokens)
        if not tokens and not text:
            return []
        piece = Piece(text, tokens, self._num_shown)
        self._num_shown += len(tokens)
        self._text, self._tokens = [], []
        return [piece]

    def _end(self, finished: Finished) -> list[Event]:
        if self.stop is None:
            _raise_failures(finished.reason)
            rest, self.stop = self._stops.push(self._detokenizer.flush())
            self._text += [rest, self._stops.flush()]
        now = time.monotonic()
        end = End(
            reason=finished.reason if self.stop is None else FinishReason.STOP,
            stop=self.stop,
            stop_token=finished.stop_token if self.stop is None else None,
            prompt_tokens=len(self._parsed.spec.prompt),
            cached_tokens=self._cached,
            completion_tokens=self.num_tokens,
            queued=self._queued,
            first_token_seconds=(self._first_token_at or now) - self._arrived_at,
            total_seconds=now - self._arrived_at,
            preemptions=finished.preemptions,
        )
        return [*self._piece(), end]


def _refusal(refused: Refused) -> errors.RequestError:
    kinds = {"QUEUE_FULL": errors.Overloaded, "NO_WORKER": errors.Unavailable, "STOPPED": errors.Unavailable}
    return kinds.get(refused.reason, errors.InvalidRequest)(refused.message)


def _raise_failures(reason: FinishReason) -> None:
    if reason is FinishReason.DEADLINE:
        raise errors.DeadlineExceeded("the request ran out of time")
    if reason is FinishReason.FAILED:
        raise errors.RequestFailed("the workers could not compute this request")
