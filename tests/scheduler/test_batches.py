"""What gRPC sends is waited for to its good end, for it frees nothing otherwise."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc
import pytest
from octavo_scheduler.batches import EventLoop, Writes
from octavo_scheduler.shield import ShieldInterceptor

METHOD = "/octavo.tests.Endless/Stream"
STREAMS, AT_ONCE = 200, 8


class SlowContext:
    """Takes a message when it is told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.taken: list[str] = []
        self.takes: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def write(self, message: str) -> None:
        self.begun.append(message)
        await self.takes
        self.taken.append(message)

    def peer(self) -> str:
        return "somebody"


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


async def test_a_stream_that_is_left_while_a_message_is_taken_ends_when_it_has_been() -> None:
    context, ended = SlowContext(), []
    writes: Any = Writes(context)  # type: ignore[arg-type]

    async def work() -> None:
        try:
            for message in "abc":
                await writes.write(message)
        finally:
            ended.append(writes.peer())

    call = asyncio.ensure_future(writes.until_left(work()))
    await until(lambda: context.begun == ["a"])
    call.cancel()
    await asyncio.sleep(0.01)
    assert not call.done()
    context.takes.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert context.begun == context.taken == ["a"]
    assert ended == ["somebody"]


async def test_a_stream_that_is_left_between_messages_ends_at_once() -> None:
    writes = Writes(SlowContext())  # type: ignore[arg-type]
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    call = asyncio.ensure_future(writes.until_left(work()))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended.is_set()


async def test_what_ends_a_stream_is_raised_where_it_was_called() -> None:
    async def work() -> None:
        raise grpc.aio.AbortError("no more")

    with pytest.raises(grpc.aio.AbortError, match="no more"):
        await Writes(SlowContext()).until_left(work())  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ValueError("not gRPC's"), asyncio.CancelledError()])
def test_of_all_errors_only_those_of_batches_are_kept_from_who_waits(error: BaseException) -> None:
    async def wait(cause: BaseException) -> Any:
        future = asyncio.get_running_loop().create_future()
        if isinstance(cause, asyncio.CancelledError):
            future.cancel()
        else:
            future.set_exception(cause)
        return await future

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        assert runner.run(wait(grpc.aio.InternalError("a batch failed"))) is None
        with pytest.raises(type(error)):
            runner.run(wait(error))


class Counted:
    """Messages that gRPC was given, and those of which it was heard again: it frees what belongs to these."""

    def __init__(self) -> None:
        self.given = self.heard_of = 0

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        serve = (await continuation(details)).unary_stream

        async def counted(request: bytes, context: Any) -> None:
            write = context.write

            async def counted_write(message: bytes) -> None:
                self.given += 1
                await write(message)
                self.heard_of += 1

            await serve(request, _With(context, counted_write))

        return grpc.unary_stream_rpc_method_handler(counted)


class _With:
    """A context with another `write`."""

    def __init__(self, context: Any, write: Callable[[bytes], Coroutine[Any, Any, None]]) -> None:
        self._context, self.write = context, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def leave(address: str) -> None:
    """Streams by the dozen, each left after its first message."""
    with grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_stream(METHOD)
        for _ in range(STREAMS // AT_ONCE):
            call = stub(b"")
            next(call)
            call.cancel()


def test_of_streams_that_are_left_no_message_is_lost_sight_of() -> None:
    class Counts(Counted, grpc.aio.ServerInterceptor): ...

    async def stream(request: bytes, context: Any) -> None:
        while True:
            await context.write(b"x" * 40)
            await asyncio.sleep(0)

    async def serve() -> Counts:
        counts = Counts()
        server = grpc.aio.server(interceptors=[counts, ShieldInterceptor()])
        _, service, method = METHOD.split("/")
        methods: dict[str, Any] = {method: grpc.unary_stream_rpc_method_handler(stream)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        await asyncio.gather(*(asyncio.to_thread(leave, address) for _ in range(AT_ONCE)))
        await server.stop(None)
        return counts

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        counts = runner.run(serve())
    assert counts.heard_of == counts.given >= STREAMS
