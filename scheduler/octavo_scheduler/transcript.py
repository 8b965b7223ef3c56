"""What the core has said about one request, and readers that follow it at their own pace.

A transcript only grows. It costs four bytes a token, and eight for each log-probability, however slowly it is read, so
nothing is queued for a reader: what it has not taken yet is taken at once, as one piece, when it comes back. A
transcript may outlive its readers (see `kept`).
"""

import asyncio
from array import array
from collections.abc import Callable, Sequence

from octavo_scheduler import limits
from octavo_scheduler.core.events import PAIR_BYTES, Committed, Finished, Output, Refused, Scored, Started
from octavo_scheduler.core.request import FinishReason

Failure = Finished | Refused

TOKEN_BYTES = 4
MOST_UNREAD = limits.STREAM_BUFFER_BYTES // 2 // TOKEN_BYTES
"""Tokens that may come while a reader is busy with a message; the other half of its buffer is that message."""

ENDS = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED)
"""Of an answer. All others are failures of its request."""


class Transcript:
    """Of one request. `run` is the id under which the core is at work on it, empty when it is not."""

    def __init__(
        self,
        beginnings: Sequence[Sequence[int]],
        seed: int,
        *,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
    ) -> None:
        """`logprobs`, `prompt_logprobs`: as in RequestSpec."""
        self.seed = seed
        self.logprob_bytes = 0 if logprobs is None else PAIR_BYTES * (1 + logprobs)
        """Of each token of the answers."""
        self.prompt_bytes = 0 if prompt_logprobs is None else PAIR_BYTES * (1 + prompt_logprobs)
        """Of each token of the prompt but the first."""
        self.run = ""
        self.started: Started | None = None
        self.tokens = [array("i") for _ in beginnings]
        self.logprobs = [bytearray() for _ in beginnings]
        self.num_told = [0] * len(beginnings)
        """Tokens of each branch that a client held: their log-probabilities are known to it alone, and 0 here."""
        self.prompt_logprobs = bytearray()
        for branch, tokens in enumerate(beginnings):
            self.go_on(branch, tokens)
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

    @property
    def num_scored(self) -> int:
        """Prompt tokens whose log-probabilities are known, the first included."""
        return 1 + len(self.prompt_logprobs) // self.prompt_bytes if self.prompt_bytes else 0

    @property
    def size(self) -> int:
        """What it costs, in tokens."""
        return (sum(map(len, self.logprobs)) + len(self.prompt_logprobs)) // TOKEN_BYTES + self.num_tokens

    def go_on(self, branch: int, held: Sequence[int]) -> None:
        """A client holds this beginning, of which some or all may be known."""
        new = held[len(self.tokens[branch]) :]
        if new:
            self.tokens[branch].extend(new)
            self.logprobs[branch].extend(bytes(len(new) * self.logprob_bytes))
            self.num_told[branch] = len(held)

    def put(self, output: Output) -> None:
        """Takes down what the core says. With the last end, or a failure, the run is over."""
        match output:
            case Committed():
                self.tokens[output.branch].append(output.token)
                self.logprobs[output.branch] += output.logprobs
            case Scored():
                self.prompt_logprobs += output.logprobs
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
        self._prompt_place = 0
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
            and (there.started is None or self._prompt_place == len(there.prompt_logprobs))
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
        if there.started is not None and self._prompt_place < len(there.prompt_logprobs):
            prompt = self._take_prompt(room)
            outputs.append(prompt)
            room -= len(prompt.logprobs) // there.prompt_bytes
        for branch, tokens in enumerate(there.tokens):
            place = self._places[branch]
            new = tokens[place : place + room]
            outputs += self._committed(branch, place, new)
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

    def _take_prompt(self, most: int) -> Scored:
        there, place = self._transcript, self._prompt_place
        logprobs = bytes(there.prompt_logprobs[place : place + most * there.prompt_bytes])
        self._prompt_place += len(logprobs)
        return Scored(self._request, 1 + place // there.prompt_bytes, logprobs)

    def _committed(self, branch: int, place: int, tokens: "array[int]") -> list[Output]:
        size, logprobs = self._transcript.logprob_bytes, self._transcript.logprobs[branch]
        if not size:
            return [Committed(self._request, branch, place + nth, token) for nth, token in enumerate(tokens)]
        return [
            Committed(self._request, branch, at, token, bytes(logprobs[at * size : (at + 1) * size]))
            for at, token in enumerate(tokens, place)
        ]
