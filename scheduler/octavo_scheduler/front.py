"""The asyncio side of the scheduler: streams of answers, fed by the loop's thread.

One `call_soon_threadsafe` per step brings all outputs; each is put into the transcript of its request, which its readers
follow. What a reader has not taken yet is coalesced into one piece. When the last reader leaves before the end, the request
is aborted, which frees its pages; its tokens are kept for a while if it has a name, and whoever asks again goes on after
them.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TypeVar

from octavo_scheduler import errors
from octavo_scheduler.answer import Answer, Begin, End, Event
from octavo_scheduler.commands import Abort, Post, Submit
from octavo_scheduler.core.events import Masked, Output, Refused
from octavo_scheduler.kept import Kept
from octavo_scheduler.limits import MAX_REQUEST_SECONDS, STREAM_BUFFER_BYTES
from octavo_scheduler.matching.matchers import Matchers
from octavo_scheduler.model import ServedModel
from octavo_scheduler.requests import Arrival, Parsed
from octavo_scheduler.tally import RequestTally
from octavo_scheduler.transcript import Reader, Transcript

log = logging.getLogger("octavo.scheduler")

T = TypeVar("T")
Trace = Callable[[Parsed], AbstractContextManager[Callable[[Begin | End], None]]]
"""Entered for as long as a request is answered; what it gives is told the first event and the last."""


ASIDE_THREADS = 2
ID_RANDOM_BYTES = 16
ID_BYTES = 5
"""Of a token id in a message, at most."""
PAIR_BYTES = 16
"""Of a token and its log-probability there."""


class Front:
    """Streams of one scheduler, or of one of its front processes. All methods but `deliver` run in the event loop."""

    def __init__(self, model: ServedModel, post: Post, mark: str = "") -> None:
        """`post` has the loop run a command; `mark` is what all ids of this front begin with."""
        self.model = model
        self._mark = mark
        self.is_draining = False
        self.kept = Kept()
        self.live: dict[str, Transcript] = {}
        """What the core is at work on, by id."""
        self._labels: dict[str, str] = {}
        self.num_readers = 0
        self.tally = RequestTally()
        self.trace: Trace = lambda parsed: nullcontext(lambda event: None)
        self._post = post
        self.matchers = Matchers(model, post)
        self.num_aside = 0
        """Pieces of work in threads, or waiting for one."""
        self._threads = ThreadPoolExecutor(ASIDE_THREADS, thread_name_prefix="aside")
        self._event_loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._idle.set()

    def deliver(self, outputs: list[Output]) -> None:
        """Called by the loop's thread, once a step."""
        self.matchers.follow(outputs)
        self._event_loop.call_soon_threadsafe(self._put, outputs)

    def _put(self, outputs: list[Output]) -> None:
        for output in outputs:
            transcript = self.live.get(output.request)
            if transcript is not None:
                transcript.put(output)
                if not transcript.run:
                    self._end_run(output.request)
                    if transcript.failure is not None:  # of one branch, perhaps: nobody waits for the others any more
                        self.abort(output.request)

    def _end_run(self, run: str) -> None:
        del self.live[run]
        del self._labels[run]
        self.matchers.end(run)

    async def drain(self, grace: float) -> None:
        """Refuses new requests and waits until the running ones have ended, at most `grace` seconds; then cuts them off."""
        self.is_draining = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace)
        sentence = "the scheduler stopped before the answer was complete; ask again with resume_from"
        for run in list(self.live):
            self._put([Refused(run, "STOPPED", sentence)])

    def labels(self) -> dict[str, str]:
        """What clients call the requests that are alive, by id. Not all of them are known to the core already, or still."""
        return dict(self._labels)

    async def aside(self, work: Callable[[], T]) -> T:
        """The result of work that takes long, such as tokenising: done in a thread while streams go on."""
        self.num_aside += 1
        try:
            return await self._event_loop.run_in_executor(self._threads, work)
        finally:
            self.num_aside -= 1

    def arrival(self, time_remaining: float | None) -> Arrival:
        """Id, seed and deadline of a request that arrives now. Raises Unavailable while draining."""
        if self.is_draining:
            raise errors.Unavailable("the scheduler is shutting down", reason="STOPPED")
        seconds = MAX_REQUEST_SECONDS if time_remaining is None else min(time_remaining, MAX_REQUEST_SECONDS)
        now = time.monotonic()
        return Arrival(
            id=self._mark + secrets.token_hex(ID_RANDOM_BYTES),
            seed=secrets.randbits(64),
            now=now,
            deadline=now + seconds,
        )

    async def parsed(
        self, check: Callable[[Arrival], Parsed], time_remaining: float | None, *, is_short: bool
    ) -> Parsed:
        """A request that arrives now, checked: at once where that is short work, else in a thread."""
        with self.tally.refusals():
            arrival = self.arrival(time_remaining)
            parsed = check(arrival) if is_short else await self.aside(lambda: check(arrival))
        seed, num_tokens = parsed.spec.sampling.seed, len(parsed.spec.prompt)
        log.info("request %s: %d prompt tokens, seed %d", arrival.id, num_tokens, seed)
        return parsed

    async def stream(self, parsed: Parsed, on_overflow: Callable[[], object] = lambda: None) -> AsyncGenerator[Event]:
        """Begin, pieces, End. Raises RequestError where the request cannot be served.

        `on_overflow` is called when too much comes while the caller is busy with an event.
        """
        with self.tally.request() as course, self.trace(parsed) as note:
            transcript = self.kept.open(parsed)
            parsed = _with_seed(parsed, transcript.seed)
            reader = Reader(transcript, parsed.spec.id, self._most_tokens(parsed), on_overflow)
            answer = Answer(self.model, parsed)
            self._enter(transcript, reader)
            try:
                while not answer.is_ended:
                    if reader.is_up_to_date and not transcript.run:
                        await self._go_on(transcript, parsed, answer)
                    events = answer.take(await reader.take())
                    for cut in answer.take_cuts():
                        self.abort(transcript.run, at=cut.at, branch=cut.branch)
                    for event in events:
                        if isinstance(event, Begin | End):
                            course.note(event)
                            note(event)
                        yield event
            finally:
                self._leave(transcript, reader, parsed)

    def _most_tokens(self, parsed: Parsed) -> int:
        """Taken at once: with what a stream interval held back they make no message longer than half the buffer."""
        asked = [count for count in (parsed.spec.logprobs, parsed.spec.prompt_logprobs) if count is not None]
        num_pairs = 2 + max(asked) if asked else 0
        each = self.model.vocabulary.longest_token + ID_BYTES + num_pairs * PAIR_BYTES
        return max(1, STREAM_BUFFER_BYTES // 4 // each)

    async def _go_on(self, transcript: Transcript, parsed: Parsed, answer: Answer) -> None:
        """Has the core compute what is not known yet, if there is any such thing.

        A constrained request comes to the core with its first masks. If another reader had it begin meanwhile, or something
        came, then the caller has to look again.
        """
        for end in answer.reached_ends():
            transcript.put(end)
        if transcript.is_whole:
            return
        run, ended = parsed.spec.id, frozenset(transcript.ends)
        known = self._known(transcript)
        held = tuple(known) if any(known) or ended else ()
        spec = replace(parsed.spec, held=held, ended=ended, num_scored=transcript.num_scored)
        masks: list[Masked] = []
        if parsed.constraint is not None:
            wanted = {branch: list(tokens) for branch, tokens in enumerate(known) if branch not in ended}
            masks = await self.matchers.begin(run, parsed.constraint, wanted)
            if transcript.run or known != self._known(transcript):
                self.matchers.end(run)
                return
        transcript.run, transcript.failure = run, None
        self.live[run] = transcript
        self._labels[run] = parsed.label
        self._post(Submit(spec, parsed.label, tuple(masks)))

    @staticmethod
    def _known(transcript: Transcript) -> list[tuple[int, ...]]:
        """The beginnings of all branches, of those that have ended nothing."""
        return [() if branch in transcript.ends else tuple(tokens) for branch, tokens in enumerate(transcript.tokens)]

    def _enter(self, transcript: Transcript, reader: Reader) -> None:
        transcript.readers.add(reader)
        self.num_readers += 1
        self._idle.clear()

    def _leave(self, transcript: Transcript, reader: Reader, parsed: Parsed) -> None:
        transcript.readers.discard(reader)
        self.num_readers -= 1
        if not self.num_readers:
            self._idle.set()
        if transcript.readers:
            return
        if transcript.run:
            self.abort(transcript.run)
            self._end_run(transcript.run)
            transcript.run = ""
        self.kept.leave(parsed, transcript)

    def abort(self, request: str, at: int | None = None, branch: int = 0) -> None:
        """Ends a run or, with `at`, one branch of it. The core says so in its outputs."""
        self._post(Abort(request, at, branch))


def _with_seed(parsed: Parsed, seed: int) -> Parsed:
    """An answer that is there goes on with the seed that it began with."""
    sampling = replace(parsed.spec.sampling, seed=seed)
    return replace(parsed, spec=replace(parsed.spec, sampling=sampling))
