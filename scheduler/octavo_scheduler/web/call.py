"""A call that came by HTTP, as our gRPC services see it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from inspect import isasyncgenfunction
from typing import Any, NoReturn

import grpc

Metadata = Sequence[tuple[str, str | bytes]]


class Ended(grpc.aio.AbortError):
    """The service has ended the call with a status that is not OK."""

    def __init__(self, status: grpc.StatusCode, sentence: str, metadata: Metadata = ()) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.metadata = status, sentence, metadata


class HttpCall:
    """Stands in for a ServicerContext: the part of it that services use."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._messages: asyncio.Queue[Any] = asyncio.Queue()

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def time_remaining(self) -> float | None:
        return None

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """HTTP has sent its own."""

    async def write(self, message: Any) -> None:
        """Returns when the message was taken, so that a slow reader is noticed as over gRPC."""
        self._messages.put_nowait(message)
        await self._messages.join()

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        raise Ended(code, details, trailing_metadata)

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        raise Ended(status.code, status.details, status.trailing_metadata or ())

    async def messages(self, serve: Callable[[Any, Any], Any], request: Any) -> AsyncIterator[Any]:
        """What a streaming method answers. Raises Ended. Leaving early cancels the method."""
        work = asyncio.ensure_future(self._write_all(serve, request))
        work.add_done_callback(lambda _: self._messages.put_nowait(None))
        try:
            while (message := await self._messages.get()) is not None:
                yield message
                self._messages.task_done()
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _write_all(self, serve: Callable[[Any, Any], Any], request: Any) -> None:
        """Methods write to the context or yield; both are streams."""
        if not isasyncgenfunction(serve):
            await serve(request, self)
            return
        async for message in serve(request, self):
            await self.write(message)


async def unless_left(work: Awaitable[Any], leaving: Awaitable[Any]) -> Any:
    """The result of `work`, which is cancelled if whoever asked for it leaves first; then CancelledError is raised."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(leaving)
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        return await task
    finally:
        task.cancel()
        gone.cancel()
