"""What the core has said about one request, and readers that follow it at their own pace.

A transcript only grows. It costs four bytes a token however slowly it is read, so nothing is queued for a reader: what it
has not taken yet is taken at once, as one piece, when it comes back. A transcript may outlive its readers (see `kept`).
"""

import asyncio
from array import array
from collections.abc import Callable, Sequence

from octavo_scheduler import limits
from octavo_scheduler.core.events import Committed, Finished, Output, Refused, Started
from octavo_scheduler.core.request import FinishReason

Failure = Finished | Refused

TOKEN_BYTES = 4
MOST_UNREAD = limits.STREAM_BUFFER_BYTES // 2 // TOKEN_BYTES
"""Tokens that may come while a reader is busy with a message; the other half of its buffer is that message."""

ENDS = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED)
"""Of an answer. All others are failures of its request."""


class Transcript:
    """Of one request. `run` is the id under which the core is at work on it, empty when it is not."""

    def __init__(self, beginnings: Sequence[Sequence[int]], seed: int) -> None:
        self.seed = seed
        self.run = ""
        self.started: Started | None = None
        self.tokens = [array("i", tokens) for tokens in beginnings]
        self.ends: dict[int, Finished] = {}
        self.failure: Failure | None = None
        self.readers: set[Reader] = set()

    @property
    def is_whole(self) -> bool:
        """All branches have ended, so that nothing can be added."""
        return len(self.ends) == len(self.tokens)

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.tokens))

    def put(self, output: Output) -> None:
        """Takes down what the core says. With the last end, or a failure, the run is over."""
        match output:
            case Committed():
                self.tokens[output.branch].append(output.token)
            case Started():
                self.started = output
            case Finished() if output.reason in ENDS:
                self.ends[output.branch] = output
            case _:
                self.failure = output
        if self.failure is not None or self.is_whole:
            self.run = ""
        for reader in self.readers:
            reader.wake()


class Reader:
    """Reads a transcript from its first token on. When too much comes between two calls of `take` it says so."""

    def __init__(
        self, transcript: Transcript, request: str, most_tokens: int, on_overflow: Callable[[], object] = lambda: None
    ) -> None:
        """`request`: what the reader's own run is called. `most_tokens`: of one `take`."""
        self.num_unread = 0
        """Outputs since the last `take`."""
        self._transcript = transcript
        self._request = request
        self._most_tokens = most_tokens
        self._on_overflow = on_overflow
        self._places = [0] * len(transcript.tokens)
        self._started: Started | None = None
        self._ended: set[int] = set()
        self._arrived = asyncio.Event()
        if not self.is_up_to_date:
            self._arrived.set()

    @property
    def is_up_to_date(self) -> bool:
        """Whether there is nothing more to be read."""
        there = self._transcript
        return (
            all(place == len(tokens) for place, tokens in zip(self._places, there.tokens, strict=True))
            and self._started is there.started
            and len(self._ended) == len(there.ends)
            and not self._has_failed
        )

    @property
    def _has_failed(self) -> bool:
        """Somebody else's deadline is no concern of this reader's."""
        failure = self._transcript.failure
        is_late = isinstance(failure, Finished) and failure.reason is FinishReason.DEADLINE
        return failure is not None and (not is_late or failure.request == self._request)

    def wake(self) -> None:
        """Something was added."""
        self.num_unread += 1
        self._arrived.set()
        if self.num_unread > MOST_UNREAD:
            self._on_overflow()

    async def take(self) -> list[Output]:
        """Waits until there is something to be read; returns it, or the beginning of it where that is much."""
        await self._arrived.wait()
        self.num_unread = 0
        there = self._transcript
        outputs: list[Output] = []
        if there.started is not None and there.started is not self._started:
            outputs.append(there.started)
        self._started = there.started
        room = self._most_tokens
        for branch, tokens in enumerate(there.tokens):
            place = self._places[branch]
            new = tokens[place : place + room]
            outputs += [Committed(self._request, branch, place + nth, token) for nth, token in enumerate(new)]
            room -= len(new)
            self._places[branch] += len(new)
            end = there.ends.get(branch)
            if end is not None and branch not in self._ended and self._places[branch] == len(tokens):
                self._ended.add(branch)
                outputs.append(end)
        if room and there.failure is not None and self._has_failed:
            outputs.append(there.failure)
        if room or self.is_up_to_date:
            self._arrived.clear()
        else:
            await asyncio.sleep(0)  # others may run before the next part
        return outputs
