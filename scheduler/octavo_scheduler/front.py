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
from octavo_scheduler.answer import Answer, Event
from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Output, Refused
from octavo_scheduler.limits import MAX_REQUEST_SECONDS
from octavo_scheduler.model import ServedModel
from octavo_scheduler.requests import Arrival, Parsed

Post = Callable[[Callable[[Core, float], list[Output]]], None]


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
        now = time.monotonic()
        return Arrival(id=secrets.token_hex(16), seed=secrets.randbits(64), now=now, deadline=now + seconds)

    async def stream(self, parsed: Parsed) -> AsyncIterator[Event]:
        """Begin, pieces, End. Raises RequestError where the request cannot be served."""
        spec = parsed.spec
        inbox = self.inboxes[spec.id] = Inbox(parsed.label)
        self._idle.clear()
        answer = Answer(self.model, parsed)
        try:
            self._post(lambda core, now: core.submit(spec, now))
            while not answer.is_ended:
                events = answer.take(await inbox.take())
                for cut in answer.take_cuts():
                    self._abort(spec.id, at=cut.at, branch=cut.branch)
                for event in events:
                    yield event
        finally:
            del self.inboxes[spec.id]
            if not self.inboxes:
                self._idle.set()
            if not answer.is_ended:
                self._abort(spec.id)

    def _abort(self, request: str, at: int | None = None, branch: int = 0) -> None:
        self._post(lambda core, now: core.abort(request, now, at, branch))
