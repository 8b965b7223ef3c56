"""The client for code without an event loop: a thin wrapper around AsyncClient.

All of it runs on one background loop for the whole process, because gRPC's asyncio side wants a single loop.
"""

import asyncio
import atexit
import functools
import queue
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from octavo.v1 import admin_pb2
from octavo.v1 import inference_pb2 as pb

from octavo_client import prompts, results
from octavo_client.addresses import DEFAULT_ADDRESS
from octavo_client.client import AsyncClient
from octavo_client.params import SamplingParams

T = TypeVar("T")

LAST_SECONDS = 5.0
"""How long the end of a program may wait for calls to be over."""


@functools.cache
def _background_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="octavo-client", daemon=True)
    thread.start()

    def stop() -> None:
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result(LAST_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    atexit.register(stop)
    return loop


async def _end_tasks() -> None:
    """What a cancelled call leaves behind runs out, as in asyncio.run; it complains aloud when its loop ends before it."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


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
        cert_file: str | Path | None = None,
        key_file: str | Path | None = None,
        model: str = "",
        resume: bool = False,
    ) -> None:
        files = {"ca_file": ca_file, "token_file": token_file, "cert_file": cert_file, "key_file": key_file}
        self.address = address
        self._client = run(_make(address, model, files, resume))

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
        self,
        prompt: prompts.Prompt,
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
        request_id: str = "",
        resume: bool | None = None,
    ) -> results.RequestOutput:
        """Continues a prompt and returns the whole answer."""
        return run(self._client.generate(prompt, params, timeout=timeout, request_id=request_id, resume=resume))

    def stream(
        self,
        prompt: prompts.Prompt,
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
        request_id: str = "",
        resume: bool | None = None,
    ) -> Iterator[results.Event]:
        """Continues a prompt and yields one Start, Deltas and one End."""
        return _iterate(self._client.stream(prompt, params, timeout=timeout, request_id=request_id, resume=resume))

    def chat(
        self,
        messages: Iterable[prompts.Message],
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
        request_id: str = "",
        resume: bool | None = None,
    ) -> results.RequestOutput:
        """Answers a conversation and returns the whole answer."""
        return run(self._client.chat(messages, params, timeout=timeout, request_id=request_id, resume=resume))

    def chat_stream(
        self,
        messages: Iterable[prompts.Message],
        params: SamplingParams | None = None,
        *,
        timeout: float | None = None,
        request_id: str = "",
        resume: bool | None = None,
    ) -> Iterator[results.Event]:
        """Answers a conversation like chat(), yielding events like stream()."""
        return _iterate(
            self._client.chat_stream(messages, params, timeout=timeout, request_id=request_id, resume=resume)
        )

    def list_models(self, *, timeout: float | None = None) -> list[pb.Model]:
        """Returns the models served here."""
        return run(self._client.list_models(timeout=timeout))

    def get_model(self, *, timeout: float | None = None) -> pb.GetModelResponse:
        """Returns what there is to know about the model: limits, defaults, how its workers compute it."""
        return run(self._client.get_model(timeout=timeout))

    def tokenize(self, content: str | Iterable[prompts.Message], *, timeout: float | None = None) -> list[int]:
        """Returns the token ids of a text, or of a conversation after the model's template."""
        return run(self._client.tokenize(content, timeout=timeout))

    def count_tokens(self, content: str | Iterable[prompts.Message], *, timeout: float | None = None) -> int:
        """Returns how many tokens a text or a conversation has."""
        return run(self._client.count_tokens(content, timeout=timeout))

    def detokenize(
        self, token_ids: Iterable[int], *, skip_special_tokens: bool = True, timeout: float | None = None
    ) -> str:
        """Returns the text of token ids."""
        return run(self._client.detokenize(token_ids, skip_special_tokens=skip_special_tokens, timeout=timeout))

    def status(self, *, timeout: float | None = None) -> admin_pb2.GetStatusResponse:
        """Returns what every worker, page and request is doing, in numbers."""
        return run(self._client.status(timeout=timeout))

    def watch_status(
        self, interval: float = 1.0, *, timeout: float | None = None
    ) -> Iterator[admin_pb2.GetStatusResponse]:
        """Yields the status every `interval` seconds."""
        return _iterate(self._client.watch_status(interval, timeout=timeout))

    def abort(self, *request_ids: str, tenant: str | None = None, timeout: float | None = None) -> list[str]:
        """Ends the requests of these names, and all of a tenant's; returns the scheduler's own ids of those alive."""
        return run(self._client.abort(*request_ids, tenant=tenant, timeout=timeout))

    def list_requests(self, *, timeout: float | None = None) -> list[admin_pb2.RequestStatus]:
        """Returns the requests alive at the server, in order of arrival."""
        return run(self._client.list_requests(timeout=timeout))

    def explain(self, request_id: str, *, timeout: float | None = None) -> list[admin_pb2.Explanation]:
        """Says why a request waits or what it is doing; one explanation for each request alive of that name."""
        return run(self._client.explain(request_id, timeout=timeout))

    def page_maps(
        self, worker_id: str = "", *, with_holders: bool = False, timeout: float | None = None
    ) -> list[admin_pb2.WorkerPageMap]:
        """Returns what every page of one worker, or of all, is doing."""
        return run(self._client.page_maps(worker_id, with_holders=with_holders, timeout=timeout))

    def flush(self, *, timeout: float | None = None) -> int:
        """Empties the prefix cache and returns how many pages that frees."""
        return run(self._client.flush(timeout=timeout))

    def pin(self, name: str, prompt: prompts.Prompt, *, salt: str = "", timeout: float | None = None) -> int:
        """Keeps a prefix in the cache under a name of your own and returns its length in tokens."""
        return run(self._client.pin(name, prompt, salt=salt, timeout=timeout))

    def unpin(self, name: str, *, timeout: float | None = None) -> None:
        """Ends a pin."""
        run(self._client.unpin(name, timeout=timeout))

    def list_pins(self, *, timeout: float | None = None) -> list[admin_pb2.PinStatus]:
        """Returns the pins, by name."""
        return run(self._client.list_pins(timeout=timeout))

    def drain_worker(self, worker_id: str, *, timeout: float | None = None) -> int:
        """Gives a worker no new requests and returns how many sequences it still has."""
        return run(self._client.drain_worker(worker_id, timeout=timeout))

    def resume_worker(self, worker_id: str, *, timeout: float | None = None) -> None:
        """Gives a draining worker new requests again."""
        run(self._client.resume_worker(worker_id, timeout=timeout))


async def _make(address: str, model: str, files: dict[str, str | Path | None], resume: bool) -> AsyncClient:
    return AsyncClient(address, model=model, resume=resume, **files)


def _iterate(events: AsyncGenerator[T]) -> Iterator[T]:
    async def next_event() -> T | None:
        return await anext(events, None)

    try:
        while (event := run(next_event())) is not None:
            yield event
    finally:
        # A stream that is left half read may live until the interpreter ends, which closes the loop first.
        if not _background_loop().is_closed():
            run(events.aclose())
