"""What grpc.aio sends and receives, its batches, each waited for to its good end: else what belongs to it is never freed.

grpc.aio frees it when whoever waits for the batch resumes, and does not if the batch failed or the wait was cancelled: 96
bytes for each operation and 176 for a message (grpc/grpc issue 43360, open with grpcio 1.85.3). Of the streams that clients
leave, every third one is left in such a moment. So the wait is not cancelled (`Writes`), and a batch does not fail
(`EventLoop`). What is left are 96 bytes of a call that its client leaves before gRPC has read its request.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import grpc

Context = grpc.aio.ServicerContext[Any, Any]


class Writes:
    """The context of a stream, whose end waits for the message that gRPC is taking."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_sending = self._is_left = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        await self._sent(self._context.write(message))

    async def send_initial_metadata(self, metadata: Any) -> None:
        await self._sent(self._context.send_initial_metadata(metadata))

    async def _sent(self, batch: Any) -> None:
        self._is_sending = True
        try:
            await batch
        finally:
            self._is_sending = False
        if self._is_left:
            raise asyncio.CancelledError

    async def until_left(self, work: Coroutine[Any, Any, None]) -> None:
        """Does `work`, which writes here, in a task of its own. However this ends, the work has ended before."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            self._is_left = True
            if not self._is_sending:
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise


class Future(asyncio.Future[Any]):
    """Its wait ends well where gRPC could not do a batch. Nothing is missed by that: then gRPC cancels the call, too."""

    def set_exception(self, exception: type[BaseException] | BaseException) -> None:
        if isinstance(exception, grpc.aio.InternalError):
            self.set_result(None)
        else:
            super().set_exception(exception)


class EventLoop(asyncio.SelectorEventLoop):
    """For a process that serves gRPC."""

    def create_future(self) -> Future:
        return Future(loop=self)
