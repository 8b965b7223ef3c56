"""Answers by the names that clients gave to their requests.

Somebody whose connection was lost asks again, under the same name, and gets the answer that is there: the one that is
being computed, or, for some time after its last reader has gone, what is known of it. Then only tokens are kept, four
bytes each and a bounded number of them; pages were given back when the reader left.
"""

import time
from array import array
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

from octavo_scheduler import limits
from octavo_scheduler.errors import InvalidRequest, NameTaken
from octavo_scheduler.requests import Parsed
from octavo_scheduler.transcript import Transcript

Key = tuple[str, str]


class Kept:
    """Transcripts by tenant and name. Those without a reader are forgotten after `seconds`, or when they are too many."""

    def __init__(
        self,
        seconds: float = limits.KEPT_ANSWER_SECONDS,
        most_answers: int = limits.MAX_KEPT_ANSWERS,
        most_tokens: int = limits.MAX_KEPT_TOKENS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds, self._most_answers, self._most_tokens = seconds, most_answers, most_tokens
        self._clock = clock
        self._named: dict[Key, tuple[bytes, Transcript]] = {}
        """With the digest of what was asked."""
        self._left_at: OrderedDict[Key, float] = OrderedDict()
        """Those without a reader, and since when."""
        self._num_tokens = 0
        """Of these."""
        self.on_forget: Callable[[Key], object] = lambda key: None
        """Told the names that are known no longer."""

    def __contains__(self, key: Key) -> bool:
        return key in self._named

    def __len__(self) -> int:
        return len(self._named)

    def open(self, parsed: Parsed) -> Transcript:
        """The transcript to read: a new one, or what there is under this name.

        Raises NameTaken where something else was asked under it, and InvalidRequest where the answer began otherwise.
        """
        self._forget()
        if not parsed.name:
            return _new(parsed)
        key, content = _key(parsed), _content(parsed)
        if key not in self._named:
            self._named[key] = content, _new(parsed)
            return self._named[key][1]
        known, transcript = self._named[key]
        if content != known or (parsed.has_seed and parsed.spec.sampling.seed != transcript.seed):
            raise NameTaken(
                f"another request is called {parsed.name[: limits.MAX_ECHO]}, or was until a moment ago",
                field="request_id",
            )
        _check_beginnings(parsed, transcript)
        if self._left_at.pop(key, None) is not None:
            self._num_tokens -= transcript.size
        if not transcript.run:
            transcript.failure = None
            for branch, held in enumerate(parsed.spec.held):
                transcript.go_on(branch, held)
        return transcript

    def leave(self, parsed: Parsed, transcript: Transcript) -> None:
        """Its last reader has left."""
        if not parsed.name:
            return
        key = _key(parsed)
        if transcript.num_tokens or transcript.ends:
            self._left_at[key] = self._clock()
            self._num_tokens += transcript.size
        else:
            del self._named[key]
            self.on_forget(key)
        self._forget()

    def _forget(self) -> None:
        """Those that were left first go first."""
        while self._left_at:
            key, left_at = next(iter(self._left_at.items()))
            is_crowded = len(self._left_at) > self._most_answers or self._num_tokens > self._most_tokens
            if not is_crowded and self._clock() < left_at + self._seconds:
                return
            del self._left_at[key]
            self._num_tokens -= self._named.pop(key)[1].size
            self.on_forget(key)


def _new(parsed: Parsed) -> Transcript:
    spec = parsed.spec
    beginnings = spec.held or [()] * spec.n
    return Transcript(beginnings, spec.sampling.seed, logprobs=spec.logprobs, prompt_logprobs=spec.prompt_logprobs)


def _key(parsed: Parsed) -> Key:
    return parsed.spec.tenant, parsed.name


def _content(parsed: Parsed) -> bytes:
    """Equal for requests that ask for the same answer, however far it is known and however long it may take."""
    spec = parsed.spec
    asked = replace(
        spec,
        id="",
        prompt=(),
        held=(),
        stop_token_ids=frozenset(),
        sampling=replace(spec.sampling, seed=0),
        deadline=None,
        queue_deadline=None,
    )
    shown = (
        sorted(spec.stop_token_ids),
        parsed.stops,
        parsed.include_stop,
        parsed.skip_special_tokens,
        parsed.min_tokens,
        parsed.constraint,
    )
    return sha256(array("i", spec.prompt).tobytes() + repr((asked, shown)).encode()).digest()


def _check_beginnings(parsed: Parsed, transcript: Transcript) -> None:
    for branch, held in enumerate(parsed.spec.held):
        known = transcript.tokens[branch][: len(held)]
        if array("i", held[: len(known)]) != known:
            raise InvalidRequest(
                "resume_from is not how the answer to this request began", field="options.scheduling.resume_from"
            )
    for branch, num_told in enumerate(transcript.num_told if transcript.logprob_bytes else ()):
        if num_told > (len(parsed.spec.held[branch]) if parsed.spec.held else 0):
            raise InvalidRequest(
                f"log-probabilities of the first {num_told} tokens are known to whoever received them only",
                field="options.output.logprobs",
            )
