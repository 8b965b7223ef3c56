"""The client for code without an event loop: a thin wrapper around AsyncClient.

All of it runs on one background loop for the whole process, because gRPC's asyncio side wants a single loop.
"""

import asyncio
import atexit
import functools
import queue
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from octavo.v1 import admin_pb2
from octavo.v1 import inference_pb2 as pb

from octavo_client import prompts, results
from octavo_client.client import DEFAULT_ADDRESS, AsyncClient
from octavo_client.params import SamplingParams

T = TypeVar("T")


@functools.cache
def _background_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="octavo-client", daemon=True)
    thread.start()

    def stop() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    atexit.register(stop)
    return loop


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the background loop and waits for it. An interrupt while waiting cancels the coroutine."""
    loop = _background_loop()
    tasks: list[asyncio.Task[T]] = []
    # Waiting on a threading.Event breaks when a second Ctrl-C comes at once; waiting on this queue does not.
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    def start() -> None:
        tasks.append(loop.create_task(work))
        tasks[0].add_done_callback(lambda _: ended.put(None))

    loop.call_soon_threadsafe(start)
    try:
        ended.get()
    except BaseException:
        loop.call_soon_threadsafe(lambda: tasks[0].cancel())
        _wait_out(ended)
        raise
    return tasks[0].result()


def _wait_out(ended: "queue.SimpleQueue[None]") -> None:
    """Waits however often Ctrl-C is pressed: cancelling a call waits for no server, and its clean-up must be over."""
    while True:
        try:
            return ended.get()
        except KeyboardInterrupt:
            continue


class Client:
    """AsyncClient without async: the same calls, arguments and errors. Safe to use from several threads."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        ca_file: str | Path | None = None,
        token_file: str | Path | None = None,
        model: str = "",
    ) -> None:
        self.address = address
        self._client = run(_make(address, ca_file, token_file, model))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the calls that still run and closes the connection."""
        run(self._client.close())

    def generate(
        self, prompt: prompts.Prompt, params: SamplingParams | None = None, *, timeout: float | None = None
    ) -> results.RequestOutput:
        """Continues a prompt and returns the whole answer."""
        return run(self._client.generate(prompt, params, timeout=timeout))

    def stream(
        self, prompt: prompts.Prompt, params: SamplingParams | None = None, *, timeout: float | None = None
    ) -> Iterator[results.Event]:
        """Continues a prompt and yields one Start, Deltas and one End."""
        return _iterate(self._client.stream(prompt, params, timeout=timeout))

    def chat(
        self,
        messages: Iterable[prompts.Message],
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
    ) -> results.RequestOutput:
        """Answers a conversation and returns the whole answer."""
        return run(self._client.chat(messages, params, timeout=timeout))

    def chat_stream(
        self,
        messages: Iterable[prompts.Message],
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
    ) -> Iterator[results.Event]:
        """Answers a conversation like chat(), yielding events like stream()."""
        return _iterate(self._client.chat_stream(messages, params, timeout=timeout))

    def list_models(self, *, timeout: float | None = None) -> list[pb.Model]:
        """Returns the models served here."""
        return run(self._client.list_models(timeout=timeout))

    def status(self, *, timeout: float | None = None) -> admin_pb2.GetStatusResponse:
        """Returns what every worker, page and request is doing, in numbers."""
        return run(self._client.status(timeout=timeout))


async def _make(address: str, ca_file: str | Path | None, token_file: str | Path | None, model: str) -> AsyncClient:
    return AsyncClient(address, ca_file=ca_file, token_file=token_file, model=model)


def _iterate(events: AsyncGenerator[results.Event]) -> Iterator[results.Event]:
    async def next_event() -> results.Event | None:
        return await anext(events, None)

    try:
        while (event := run(next_event())) is not None:
            yield event
    finally:
        # A stream that is left half read may live until the interpreter ends, which closes the loop first.
        if not _background_loop().is_closed():
            run(events.aclose())
