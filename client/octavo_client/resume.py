"""A stream that outlives its connection: when that is lost it asks again and goes on after the tokens it holds.

The server draws the same random numbers for the same seed, so the text is what it would have been. If the scheduler is the
same one, it finds the answer by the request's name and goes on where it was; a new one computes the tokens' pages again.
"""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from octavo.v1 import inference_pb2 as pb

from octavo_client import results
from octavo_client.errors import Cancelled, Overloaded, RequestError, ServerFault, Unavailable

Ask = Callable[[Any, float | None], AsyncGenerator[results.Event]]
"""A stream for a request and the seconds that are left for it."""

PATIENCE_SECONDS = 60.0
"""So long without any news it goes on asking."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0


class Held:
    """What has come of the answers to one request."""

    def __init__(self, num_answers: int) -> None:
        self.start: results.Start | None = None
        self._tokens: list[list[int]] = [[] for _ in range(num_answers)]
        self._num_prompt = 0
        """Prompt tokens whose log-probabilities came."""
        self._whole: set[int] = set()
        """Answers of which the text came that is held back until the end."""

    def take(self, event: results.Event) -> results.Event | None:
        """The event, or None where it has come before. Raises ServerFault where something is missing in between."""
        match event:
            case results.Start():
                is_new, self.start = self.start is None, self.start or event
                return event if is_new else None
            case results.PromptLogprobs():
                new = event.logprobs[self._num_prompt - event.first_index :]
                first, self._num_prompt = self._num_prompt, self._num_prompt + len(new)
                return results.PromptLogprobs(first, new) if new else None
            case results.Delta():
                return event if self._add(event) else None
        return event

    def _add(self, delta: results.Delta) -> bool:
        tokens = self._tokens[delta.index]
        if delta.first_index != len(tokens):
            raise ServerFault(f"The server went on with token {delta.first_index} instead of {len(tokens)}.")
        if not delta.token_ids:
            is_new = delta.index not in self._whole
            self._whole.add(delta.index)
            return is_new
        tokens += delta.token_ids
        return True

    def rest(self, request: Any) -> Any:
        """The request for what has not come yet."""
        asked = type(request)()
        asked.CopyFrom(request)
        if self.start is None:
            return asked
        asked.options.sampling.seed = self.start.seed
        if any(self._tokens):
            first, *others = (pb.TokenIds(ids=tokens) for tokens in self._tokens)
            asked.options.scheduling.resume_from.CopyFrom(first)
            asked.options.scheduling.resume_from_others.extend(others)
        return asked


async def resumed(ask: Ask, request: Any, timeout: float | None) -> AsyncGenerator[results.Event]:
    """The events of one stream, whatever happens to its connections. Raises the last error when nothing comes for long."""
    request.request_id = request.request_id or secrets.token_hex(16)
    held = Held(max(request.options.sampling.n, 1))
    deadline = None if timeout is None else time.monotonic() + timeout
    pauses = Pauses()
    while True:
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        try:
            async with aclosing(ask(held.rest(request), left)) as events:
                async for event in events:
                    pauses.reset()
                    if (new := held.take(event)) is not None:
                        yield new
            return
        except (Unavailable, Cancelled, Overloaded) as error:
            if isinstance(error, Overloaded) and held.start is None:
                raise
            await pauses.wait(error)


class Pauses:
    """Ever longer ones, each of chance length, so that the clients of a scheduler that restarts do not all come at once."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """There was news."""
        self._pause = FIRST_PAUSE_SECONDS
        self._give_up_at = time.monotonic() + PATIENCE_SECONDS

    async def wait(self, error: RequestError) -> None:
        """Raises `error` when it has been waited for long enough."""
        if time.monotonic() > self._give_up_at:
            raise error
        told = error.retry_after if isinstance(error, Overloaded) else None
        await asyncio.sleep(told or self._pause * random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
