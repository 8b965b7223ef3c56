"""Messages on their way to a client that may not read them.

gRPC is given one message at a time, and the next when it has taken that one: what a slow reader has not got yet stays in
the transcript, where it costs least, and goes out as one message later. Who takes no message for too long, or leaves too
much behind, is cut off. HTTP/2 alone would let megabytes pile up.
"""

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from octavo_scheduler import limits
from octavo_scheduler.errors import RequestError, SlowReader

Context = grpc.aio.ServicerContext[Any, Any]

LAST_WORDS_SECONDS = 0.05
"""gRPC sends the status when the reader has taken what was sent before; nobody waits for that."""


class Outlet:
    """Of one stream."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._has_begun = False
        self._waiting: asyncio.Timeout | None = None

    async def write(self, message: Any) -> None:
        """Returns when gRPC has taken the message. Raises SlowReader."""
        if not self._has_begun:
            self._has_begun = True
            await self._context.send_initial_metadata(
                ()
            )  # else a status could not follow a first message that is stuck
        try:
            async with asyncio.timeout(limits.STALLED_SECONDS) as self._waiting:
                await self._context.write(message)
        except TimeoutError:
            raise SlowReader("the stream was not read for too long; ask again with resume_from") from None
        finally:
            self._waiting = None

    def cut(self) -> None:
        """Too much has come since the message that is on its way: its time is over."""
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def end(self, error: RequestError) -> None:
        """The status of a stream that cannot go on."""
        if not isinstance(error, SlowReader):
            await self._context.abort(error.status, str(error), error.metadata)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._context.abort(error.status, str(error), error.metadata)
