"""octavo.v1.AdminService: what an operator asks and orders, done in the loop's thread between two turns."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from octavo.v1 import admin_pb2 as pb
from octavo.v1 import admin_pb2_grpc

from octavo_scheduler import limits, report
from octavo_scheduler.core import Core, events
from octavo_scheduler.core.events import Output
from octavo_scheduler.core.explain import explain
from octavo_scheduler.core.states import WorkerState
from octavo_scheduler.core.worker import Worker
from octavo_scheduler.errors import InvalidRequest, Overloaded, RequestError, UnknownName
from octavo_scheduler.front import Front
from octavo_scheduler.frontend.fleet import Fleet
from octavo_scheduler.loop import Loop
from octavo_scheduler.outlet import Outlet
from octavo_scheduler.prompts import parse_prompt
from octavo_scheduler.questions import Answer, Question, ask

Context = grpc.aio.ServicerContext[Any, Any]


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """One for each scheduler."""

    def __init__(self, front: Front, loop: Loop, fleet: Fleet | None = None) -> None:
        """`fleet`: front processes beside the scheduler's own front."""
        self._front = front
        self._fleet = fleet
        self._loop = loop
        self._started_at = time.monotonic()
        self._num_watchers = 0

    async def GetStatus(self, request: pb.GetStatusRequest, context: Context) -> pb.GetStatusResponse:
        status = await self._ask(context, lambda core, now, outputs: report.status(core, self._loop, now))
        status.model = self._front.model.name
        status.uptime_seconds = time.monotonic() - self._started_at
        services = [report.service(self._front.tally)]
        if self._fleet is not None:
            services += self._fleet.hub.services()
            status.counters.frontends_lost = self._fleet.num_lost
        status.service.MergeFrom(report.total(services))
        return status

    async def WatchStatus(self, request: pb.WatchStatusRequest, context: Context) -> None:
        outlet = Outlet(context)
        try:
            seconds = _watch_seconds(request)
            with self._watched():
                while True:
                    status = await self.GetStatus(pb.GetStatusRequest(), context)
                    await outlet.write(pb.WatchStatusResponse(status=status))
                    await asyncio.sleep(seconds)
        except RequestError as error:
            await outlet.end(error)

    async def ListRequests(self, request: pb.ListRequestsRequest, context: Context) -> pb.ListRequestsResponse:
        labels = self._labels()
        return await self._ask(
            context, lambda core, now, outputs: pb.ListRequestsResponse(requests=report.requests(core, labels, now))
        )

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        name = request.request_id
        ids = [id for id, label in self._labels().items() if name == label] or [name]

        def look(core: Core, now: float, outputs: list[Output]) -> pb.ExplainResponse:
            alive = [id for id in ids if id in core.requests] or ids[:1]
            return pb.ExplainResponse(
                explanations=[
                    pb.Explanation(id=id if id in core.requests else "", text=explain(core, id, now))
                    for id in alive[: limits.MAX_EXPLANATIONS]
                ]
            )

        return await self._ask(context, look)

    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortResponse:
        names, labels = frozenset(request.request_ids), self._labels()

        def abort(core: Core, now: float, outputs: list[Output]) -> pb.AbortResponse:
            if not names and not request.HasField("tenant"):
                raise InvalidRequest("nothing is named: say which request_ids, or which tenant's requests")
            ids = [
                id
                for id, each in core.requests.items()
                if id in names
                or labels.get(id) in names
                or (request.HasField("tenant") and each.spec.tenant == request.tenant)
            ]
            for id in ids:
                outputs += core.abort(id, now)
            return pb.AbortResponse(ids=ids)

        return await self._ask(context, abort)

    async def GetPageMap(self, request: pb.GetPageMapRequest, context: Context) -> pb.GetPageMapResponse:
        labels = self._labels()

        def look(core: Core, now: float, outputs: list[Output]) -> pb.GetPageMapResponse:
            names = [request.worker_id] if request.worker_id else sorted(core.workers)
            present = [_worker(core, name) for name in names]
            return pb.GetPageMapResponse(workers=report.page_maps(present, labels, request.with_holders))

        return await self._ask(context, look)

    async def Flush(self, request: pb.FlushRequest, context: Context) -> pb.FlushResponse:
        def flush(core: Core, now: float, outputs: list[Output]) -> pb.FlushResponse:
            num_cached = sum(w.device.num_cached + w.host.num_cached for w in core.workers.values())
            outputs += core.apply(events.Flush(), now)
            return pb.FlushResponse(freed_pages=num_cached)

        return await self._ask(context, flush)

    async def Pin(self, request: pb.PinRequest, context: Context) -> pb.PinResponse:
        try:
            tokens = await self._front.aside(lambda: self._prefix(request))
        except RequestError as error:
            await context.abort(error.status, str(error), error.metadata)

        def pin(core: Core, now: float, outputs: list[Output]) -> pb.PinResponse:
            if len(core.pins) >= limits.MAX_PINS and request.name not in core.pins:
                raise Overloaded(f"there are {len(core.pins)} pins already, which is the limit")
            pinned = sum(len(pin.tokens) for name, pin in core.pins.items() if name != request.name)
            if pinned + len(tokens) > limits.MAX_PINNED_TOKENS:
                raise Overloaded(
                    f"{pinned} tokens are pinned already; {len(tokens)} more would be above the limit of "
                    f"{limits.MAX_PINNED_TOKENS}"
                )
            outputs += core.apply(events.Pin(name=request.name, tokens=tokens, salt=request.salt), now)
            return pb.PinResponse(tokens=len(tokens))

        return await self._ask(context, pin)

    async def Unpin(self, request: pb.UnpinRequest, context: Context) -> pb.UnpinResponse:
        def unpin(core: Core, now: float, outputs: list[Output]) -> pb.UnpinResponse:
            if request.name not in core.pins:
                raise UnknownName(f"there is no pin named {request.name[: limits.MAX_ECHO]}")
            outputs += core.apply(events.Unpin(request.name), now)
            return pb.UnpinResponse()

        return await self._ask(context, unpin)

    async def ListPins(self, request: pb.ListPinsRequest, context: Context) -> pb.ListPinsResponse:
        return await self._ask(context, lambda core, now, outputs: pb.ListPinsResponse(pins=report.pins(core)))

    async def DrainWorker(self, request: pb.DrainWorkerRequest, context: Context) -> pb.DrainWorkerResponse:
        def drain(core: Core, now: float, outputs: list[Output]) -> pb.DrainWorkerResponse:
            worker = _worker(core, request.worker_id)
            if worker.state is WorkerState.READY:
                outputs += core.apply(events.Drain(worker.id), now)
            return pb.DrainWorkerResponse(remaining=len(worker.running) + len(worker.swapped))

        return await self._ask(context, drain)

    async def ResumeWorker(self, request: pb.ResumeWorkerRequest, context: Context) -> pb.ResumeWorkerResponse:
        def resume(core: Core, now: float, outputs: list[Output]) -> pb.ResumeWorkerResponse:
            worker = _worker(core, request.worker_id)
            if worker.state is WorkerState.DRAINING:
                outputs += core.apply(events.Resume(worker.id), now)
            return pb.ResumeWorkerResponse()

        return await self._ask(context, resume)

    def _labels(self) -> dict[str, str]:
        """What clients call requests, by id."""
        return self._front.labels() | (self._fleet.hub.labels() if self._fleet is not None else {})

    async def _ask(self, context: Context, question: Question[Answer]) -> Answer:
        """The answer, or the end of the call with the status of the RequestError that was raised."""
        try:
            return await ask(self._loop, question)
        except RequestError as error:
            await context.abort(error.status, str(error), error.metadata)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        if self._num_watchers >= limits.MAX_WATCHERS:
            raise Overloaded(f"{self._num_watchers} watch the status already, which is the limit")
        self._num_watchers += 1
        try:
            yield
        finally:
            self._num_watchers -= 1

    def _prefix(self, request: pb.PinRequest) -> tuple[int, ...]:
        """The tokens to pin. Raises InvalidRequest for a name or a prompt that will not do."""
        if not 0 < len(request.name.encode()) <= limits.MAX_PIN_NAME_BYTES:
            raise InvalidRequest(f"a pin's name has 1 to {limits.MAX_PIN_NAME_BYTES} bytes", field="name")
        if len(request.salt.encode()) > limits.MAX_TENANT_BYTES:
            raise InvalidRequest("salt is too long", field="salt")
        return tuple(parse_prompt(self._front.model, request.prompt))


def _worker(core: Core, name: str) -> Worker:
    worker = core.workers.get(name)
    if worker is None:
        raise UnknownName(f"no worker named {name[: limits.MAX_ECHO]} is here")
    return worker


def _watch_seconds(request: pb.WatchStatusRequest) -> float:
    seconds, (least, most) = request.interval_seconds, limits.WATCH_SECONDS
    if not request.HasField("interval_seconds"):
        return 1.0
    if not least <= seconds <= most:
        raise InvalidRequest(
            f"interval_seconds is {seconds}; it must lie in [{least:g}, {most:g}]", field="interval_seconds"
        )
    return seconds
