"""vllm.grpc.engine.VllmEngine over the front: what gateways such as smg and llm-d call on an engine."""

import asyncio
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TypeVar

import grpc
from octavo.foreign import vllm_engine_pb2 as pb
from octavo.foreign import vllm_engine_pb2_grpc

from octavo_scheduler import limits
from octavo_scheduler.compat import kv_events, vllm_messages
from octavo_scheduler.compat.tokenizer_files import tokenizer_archive
from octavo_scheduler.core import Core, events
from octavo_scheduler.core.events import Output
from octavo_scheduler.errors import Overloaded, RequestError
from octavo_scheduler.front import Front
from octavo_scheduler.outlet import Context, Outlet
from octavo_scheduler.prompts import parse_prompt
from octavo_scheduler.questions import Posts, Question, ask, is_ready
from octavo_scheduler.requests import Arrival, Parsed, parse
from octavo_scheduler.service import SHORT_BYTES

Answer = TypeVar("Answer")

SERVER_TYPE = "vllm-grpc"
"""What gateways take a server of this service for."""
ARCHIVE_PART_BYTES = 1 << 20
LOOK_SECONDS, LOOK_SECONDS_A_PAGE = 0.25, 1e-4
"""Between two looks at the prefix caches for a subscriber. A look takes well below a microsecond a page."""


@dataclass(eq=False)
class Call:
    """A Generate that is not over. `run` is what the core calls it, once it knows it."""

    run: str = ""
    is_aborted: bool = False


class VllmEngine(vllm_engine_pb2_grpc.VllmEngineServicer):
    """One for each scheduler."""

    def __init__(self, front: Front, loop: Posts) -> None:
        self._front = front
        self._loop = loop
        self._started_at = time.monotonic()
        self._calls: dict[str, set[Call]] = {}
        """By the names that gateways gave them."""
        self._num_subscribers = 0

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> None:
        outlet = Outlet(context)
        try:
            with self._called(request.request_id) as call:
                parsed = await self._parse(request, context)
                if call.is_aborted:
                    await context.abort(grpc.StatusCode.CANCELLED, "the request was aborted before it began")
                call.run = parsed.spec.id
                responses = vllm_messages.Responses(parsed.spec, with_chunks=request.stream)
                async with aclosing(self._front.stream(parsed, outlet.cut)) as happened:
                    async for event in happened:
                        for response in responses.of(event):
                            await outlet.write(response)
        except RequestError as error:
            await outlet.end(error)

    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortResponse:
        for call in [call for name in request.request_ids if name for call in self._calls.get(name, ())]:
            call.is_aborted = True
            if call.run:
                self._front.abort(call.run)
        return pb.AbortResponse()

    async def HealthCheck(self, request: pb.HealthCheckRequest, context: Context) -> pb.HealthCheckResponse:
        if self._front.is_draining:
            return pb.HealthCheckResponse(healthy=False, message="the scheduler is shutting down")
        is_healthy = await self._ask(context, is_ready)
        return pb.HealthCheckResponse(healthy=is_healthy, message="ready" if is_healthy else "no worker is here")

    async def FlushCache(self, request: pb.FlushCacheRequest, context: Context) -> pb.FlushCacheResponse:
        def flush(core: Core, now: float, outputs: list[Output]) -> pb.FlushCacheResponse:
            num_cached = sum(w.device.num_cached + w.host.num_cached for w in core.workers.values())
            outputs += core.apply(events.Flush(), now)
            return pb.FlushCacheResponse(success=True, message=f"{num_cached} pages are free now")

        return await self._ask(context, flush)

    async def GetModelInfo(self, request: pb.GetModelInfoRequest, context: Context) -> pb.GetModelInfoResponse:
        model = self._front.model
        return pb.GetModelInfoResponse(
            model_path=model.name,
            is_generation=True,
            max_context_length=model.max_context,
            vocab_size=model.vocab_size,
            served_model_name=model.name,
            tokenizer_path=model.name,
            eos_token_ids=sorted(model.end_token_ids),
            max_req_input_len=model.max_context - 1,
            default_sampling_params_json=json.dumps(model.defaults) if model.defaults else "",
        )

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: Context) -> pb.GetServerInfoResponse:
        def look(core: Core, now: float, outputs: list[Output]) -> pb.GetServerInfoResponse:
            return pb.GetServerInfoResponse(
                active_requests=len(core.requests),
                is_paused=not is_ready(core, now, outputs),
                uptime_seconds=time.monotonic() - self._started_at,
                server_type=SERVER_TYPE,
                data_parallel_size=1,
                block_size=max((worker.page_size for worker in core.workers.values()), default=0),
                max_num_seqs=_num_slots(core),
            )

        return await self._ask(context, look)

    async def GetLoads(self, request: pb.GetLoadsRequest, context: Context) -> pb.GetLoadsResponse:
        load = await self._ask(context, lambda core, now, outputs: _load(core))
        return pb.GetLoadsResponse(
            timestamp=datetime.now(UTC).isoformat(), version=version("octavo"), dp_rank_count=1, loads=[load]
        )

    async def GetTokenizer(self, request: pb.GetTokenizerRequest, context: Context) -> None:
        archive = await self._front.aside(lambda: tokenizer_archive(self._front.model))
        outlet = Outlet(context)
        try:
            for first in range(0, len(archive), ARCHIVE_PART_BYTES):
                part = archive[first : first + ARCHIVE_PART_BYTES]
                is_last = first + len(part) == len(archive)
                sha256 = hashlib.sha256(archive).hexdigest() if is_last else ""
                await outlet.write(pb.GetTokenizerChunk(data=part, sha256=sha256))
        except RequestError as error:
            await outlet.end(error)

    async def SubscribeKvEvents(self, request: pb.SubscribeKvEventsRequest, context: Context) -> None:
        outlet = Outlet(context)
        try:
            with self._subscribed():
                await self._tell_changes(outlet)
        except RequestError as error:
            await outlet.end(error)

    async def _tell_changes(self, outlet: Outlet) -> None:
        pages = await ask(self._loop, lambda core, now, outputs: kv_events.cached_pages(core))
        batches = kv_events.snapshot(pages)
        number = 0
        while True:
            for batch in batches:
                number += 1
                batch.sequence_number, batch.timestamp, batch.dp_rank = number, time.time(), 0
                await outlet.write(batch)
            await asyncio.sleep(LOOK_SECONDS + LOOK_SECONDS_A_PAGE * len(pages))
            known = pages
            pages = await ask(self._loop, lambda core, now, outputs: kv_events.cached_pages(core))
            batches = kv_events.changes(known, pages)

    async def _parse(self, request: pb.GenerateRequest, context: Context) -> Parsed:
        model = self._front.model

        def check(arrival: Arrival) -> Parsed:
            ids = parse_prompt(model, vllm_messages.prompt_of(request))
            options = vllm_messages.options_of(request.sampling_params)
            parsed = parse(model, ids, options, request.request_id, arrival)
            return replace(parsed, name="")  # for Abort; nobody asks for an answer again by it

        is_short = request.ByteSize() <= SHORT_BYTES
        return await self._front.parsed(check, context.time_remaining(), is_short=is_short)

    @contextmanager
    def _called(self, name: str) -> Iterator[Call]:
        """Can be aborted within, by this name."""
        call = Call()
        self._calls.setdefault(name, set()).add(call)
        try:
            yield call
        finally:
            self._calls[name].discard(call)
            if not self._calls[name]:
                del self._calls[name]

    @contextmanager
    def _subscribed(self) -> Iterator[None]:
        if self._num_subscribers >= limits.MAX_KV_SUBSCRIBERS:
            raise Overloaded(f"there are {self._num_subscribers} subscribers already, which is the limit")
        self._num_subscribers += 1
        try:
            yield
        finally:
            self._num_subscribers -= 1

    async def _ask(self, context: Context, question: Question[Answer]) -> Answer:
        try:
            return await ask(self._loop, question)
        except RequestError as error:
            await context.abort(error.status, str(error), error.metadata)


def _num_slots(core: Core) -> int:
    return sum(len(worker.free_slots) + len(worker.running) for worker in core.workers.values())


def _load(core: Core) -> pb.SchedulerLoad:
    workers = core.workers.values()
    num_running = sum(len(worker.running) for worker in workers)
    num_waiting = len(core.waiting) + sum(len(worker.swapped) for worker in workers)
    used = sum(worker.device.num_held * worker.page_size for worker in workers)
    total = sum(worker.device.num_usable * worker.page_size for worker in workers)
    return pb.SchedulerLoad(
        num_running_reqs=num_running,
        num_waiting_reqs=num_waiting,
        num_total_reqs=num_running + num_waiting,
        num_used_tokens=used,
        max_total_num_tokens=total,
        token_usage=used / total if total else 0.0,
        max_running_requests=_num_slots(core),
        num_waiting_uncached_tokens=core.waiting.queued.tokens,
    )
