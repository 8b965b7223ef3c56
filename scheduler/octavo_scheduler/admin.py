"""octavo.v1.AdminService: the operator's view, read in the loop's thread between two turns."""

import asyncio
import time
from typing import Any

import grpc
from octavo.v1 import admin_pb2 as pb
from octavo.v1 import admin_pb2_grpc

from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Output
from octavo_scheduler.core.pages import PagePool
from octavo_scheduler.core.states import WorkerState
from octavo_scheduler.core.worker import Worker
from octavo_scheduler.loop import Loop

WORKER_STATES = {
    WorkerState.JOINING: pb.WORKER_STATE_JOINING,
    WorkerState.READY: pb.WORKER_STATE_READY,
    WorkerState.DRAINING: pb.WORKER_STATE_DRAINING,
}


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """One for each scheduler."""

    def __init__(self, model: str, loop: Loop) -> None:
        self._model = model
        self._loop = loop
        self._started_at = time.monotonic()

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> pb.GetStatusResponse:
        event_loop = asyncio.get_running_loop()
        answer: asyncio.Future[pb.GetStatusResponse] = event_loop.create_future()

        def settle(status: pb.GetStatusResponse) -> None:
            if not answer.done():
                answer.set_result(status)

        def look(core: Core, now: float) -> list[Output]:
            event_loop.call_soon_threadsafe(settle, self._status(core))
            return []

        self._loop.post(look)
        return await answer

    def _status(self, core: Core) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(
            model=self._model,
            uptime_seconds=time.monotonic() - self._started_at,
            live_requests=len(core.requests),
            waiting=len(core.waiting),
            workers=[worker_status(worker) for _, worker in sorted(core.workers.items())],
            counters=self._counters(core),
        )

    def _counters(self, core: Core) -> pb.Counters:
        totals, workers = core.counters, core.workers.values()
        return pb.Counters(
            accepted=totals.accepted,
            refused=totals.refused,
            ended=totals.ended,
            cancelled=totals.cancelled,
            prompt_tokens=totals.prompt_tokens,
            generated_tokens=totals.generated_tokens,
            drops=totals.drops + sum(worker.num_drops for worker in workers),
            swaps=totals.swaps + sum(worker.num_swaps for worker in workers),
            stale_messages=totals.stale_messages + self._loop.num_stale,
            bad_messages=self._loop.num_bad,
            workers_lost=totals.workers_lost,
            audit_violations=totals.audit_violations,
        )


def worker_status(worker: Worker) -> pb.WorkerStatus:
    return pb.WorkerStatus(
        worker_id=worker.id,
        state=WORKER_STATES[worker.state],
        page_size=worker.page_size,
        device=page_counts(worker.device),
        host=page_counts(worker.host),
        running=len(worker.running),
        swapped=len(worker.swapped),
        plans_in_flight=len(worker.in_flight),
        step=worker.step,
        kernels=worker.joined.kernels,
        slot_utilisation=worker.utilisation.share,
        saturated_slot_utilisation=worker.saturated.share,
    )


def page_counts(pool: PagePool) -> pb.PageCounts:
    return pb.PageCounts(
        total=pool.total,
        free=pool.num_free,
        cached=pool.num_cached,
        held=pool.num_held,
        fenced=pool.num_fenced,
        quarantined=len(pool.quarantined),
        peak_held=pool.peak_held,
    )
