"""Five times more load than can be served, through the real front, loop and link; and a tenant that floods another one.

The scheduler runs in a process of its own, and so does a worker that takes a fixed time for each step, so that the capacity
is known and nothing but scheduling is measured. Load is open-loop: requests come at their times whatever became of those
before. Client, scheduler and worker share the machine's cores, so that latencies include the client's own.

Prints one line of JSON. goodput: tokens per second of answers that were complete in time. The goodput at 5 times the
capacity is compared with the best that was measured.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from octavo.v1 import admin_pb2, admin_pb2_grpc, inference_pb2_grpc
from octavo.v1 import inference_pb2 as pb
from octavo_client.local import LocalServer, Programs
from octavo_scheduler.core import Settings
from octavo_scheduler.offline.meter import percentile

from tests.doubles.tiny_model import make_tiny_model

STEP_MS, SLOTS, PAGES = 20.0, 16, 96
PROMPT_TOKENS, ANSWER_TOKENS = 32, 16
MOST_QUEUED = 64
DEADLINE = 5.0
"""Seconds after which an answer is worth nothing."""


@dataclass
class Tally:
    """What became of the requests of one load."""

    seconds: float = 0.0
    sent: int = 0
    in_time: int = 0
    tokens: int = 0
    drain: float = 0.0
    """Seconds from the end of the load until its last request was answered."""
    waits: list[float] = field(default_factory=list)
    """Seconds in the queue, of requests that were served."""
    rejections: list[float] = field(default_factory=list)
    """Seconds from sending to refusal."""
    others: int = 0
    without_hint: int = 0

    @property
    def goodput(self) -> float:
        return self.tokens / self.seconds


class Service:
    """The client's side."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._generate: Any = inference_pb2_grpc.InferenceServiceStub(channel).Generate
        self._admin: Any = admin_pb2_grpc.AdminServiceStub(channel)
        self._random = random.Random(0)

    async def status(self) -> admin_pb2.GetStatusResponse:
        status: admin_pb2.GetStatusResponse = await self._admin.GetStatus(admin_pb2.GetStatusRequest())
        return status

    def request(self, tenant: str) -> pb.GenerateRequest:
        """Its prompt is of its own, so that no prefix is found."""
        ids = [self._random.randrange(3, 259) for _ in range(PROMPT_TOKENS)]
        options = pb.GenerationOptions(
            stopping=pb.StoppingOptions(max_tokens=ANSWER_TOKENS, ignore_eos=True),
            scheduling=pb.SchedulingOptions(tenant=tenant),
        )
        return pb.GenerateRequest(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=ids)), options=options)

    async def one(self, tenant: str, tally: Tally) -> None:
        request = self.request(tenant)
        started = time.perf_counter()
        tally.sent += 1
        try:
            response = await self._generate(request, timeout=DEADLINE)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                tally.others += 1
                return
            tally.rejections.append(time.perf_counter() - started)
            tally.without_hint += "retry-after-ms" not in dict(error.trailing_metadata() or ())
            return
        tally.in_time += 1
        tally.tokens += response.usage.completion_tokens
        tally.waits.append(response.timings.queue_seconds)

    async def flood(self, rate: float, seconds: float, tenant: str = "") -> Tally:
        """Open-loop: `rate` requests per second, evenly. Only what ends while it lasts counts for its goodput."""
        tally = Tally(seconds=seconds)
        running: set[asyncio.Task[None]] = set()
        started = time.perf_counter()
        for number in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
            task = asyncio.create_task(self.one(tenant, tally))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.sleep(max(0.0, started + seconds - time.perf_counter()))
        tally.seconds, tokens = time.perf_counter() - started, tally.tokens
        await asyncio.gather(*running)
        tally.tokens, tally.drain = tokens, time.perf_counter() - started - tally.seconds
        return tally

    async def saturate(self, seconds: float) -> Tally:
        """Closed-loop with twice as many clients as slots: what can be served at best."""
        tally = Tally()
        started = time.perf_counter()

        async def client() -> None:
            while time.perf_counter() < started + seconds:
                await self.one("", tally)

        await asyncio.gather(*(client() for _ in range(2 * SLOTS)))
        tally.seconds = time.perf_counter() - started
        return tally


def resident_bytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096.0


def percentile_ms(seconds: list[float], share: float) -> float | None:
    """None where nothing was there to measure."""
    found = percentile(seconds, share)
    return None if found is None else round(found * 1000, 2)


async def overload(service: Service, pid: int, seconds: float) -> dict[str, Any]:
    await service.saturate(2.0)
    best = await service.saturate(seconds / 2)
    rate = best.in_time / best.seconds
    at_one = await service.flood(rate, seconds)
    before = resident_bytes(pid)
    stop = asyncio.Event()
    waiting: list[int] = []

    async def watch() -> None:
        while not stop.is_set():
            waiting.append((await service.status()).waiting)
            await asyncio.sleep(0.25)

    watcher = asyncio.create_task(watch())
    at_five = await service.flood(5 * rate, seconds)
    middle = resident_bytes(pid)
    again = await service.flood(5 * rate, seconds)
    after = resident_bytes(pid)
    stop.set()
    await watcher
    later = await service.flood(rate / 2, seconds / 2)
    peak = max(best.goodput, at_one.goodput)
    rejections = at_five.rejections + again.rejections
    return {
        "capacity_tokens_per_second": round(best.goodput, 1),
        "goodput_1x": round(at_one.goodput, 1),
        "goodput_5x": round(at_five.goodput, 1),
        "goodput_ratio": round(min(at_five.goodput, again.goodput) / peak, 3),
        "sent_5x": at_five.sent + again.sent,
        "rejected_5x": len(rejections),
        "rejected_without_hint": at_five.without_hint + again.without_hint,
        "failed_otherwise": sum(t.others for t in (best, at_one, at_five, again, later)),
        "reject_ms_p50": percentile_ms(rejections, 0.5),
        "reject_ms_p99": percentile_ms(rejections, 0.99),
        "most_waiting": max(waiting),
        "rss_mb": round(after / 2**20, 1),
        "rss_growth": round(after / middle, 3),
        "rss_growth_from_1x": round(after / before, 3),
        "drain_seconds": round(again.drain, 2),
        "recovered": later.in_time == later.sent,
    }


async def two_tenants(service: Service, rate: float, seconds: float) -> dict[str, Any]:
    """The victim asks for somewhat less than its half, alone and while another tenant floods; then both flood."""
    alone = await service.flood(0.4 * rate, seconds, "victim")
    victim, flooder = await asyncio.gather(
        service.flood(0.4 * rate, seconds, "victim"), service.flood(5 * rate, seconds, "flooder")
    )
    one, other = await asyncio.gather(service.flood(3 * rate, seconds, "a"), service.flood(1.5 * rate, seconds, "b"))
    prices = Settings.prompt_token_price, Settings.answer_token_price
    most = 2 * max(prices[0] * PROMPT_TOKENS, prices[1] * SLOTS * (PROMPT_TOKENS + ANSWER_TOKENS))
    price = (prices[0] * PROMPT_TOKENS + prices[1] * ANSWER_TOKENS) / ANSWER_TOKENS
    return {
        "victim_served": round(victim.in_time / victim.sent, 3),
        "victim_share": round(victim.goodput / (victim.goodput + flooder.goodput), 3),
        "victim_share_asked": round(0.4 * rate * ANSWER_TOKENS / (victim.goodput + flooder.goodput), 3),
        "victim_wait_ms_p50": percentile_ms(victim.waits, 0.5),
        "victim_wait_ms_p99": percentile_ms(victim.waits, 0.99),
        "victim_wait_bound_ms": round(1000 * most / (rate * ANSWER_TOKENS * price)),
        "victim_wait_alone_ms_p50": percentile_ms(alone.waits, 0.5),
        "flooder_wait_ms_p50": percentile_ms(flooder.waits, 0.5),
        "both_flood_share": round(one.goodput / (one.goodput + other.goodput), 3),
        "both_flood_gap": round(abs(one.tokens - other.tokens) * price),
        "vtc_bound": round(most),
    }


async def measure(address: str, pid: int, seconds: float) -> dict[str, Any]:
    async with grpc.aio.insecure_channel(address) as channel:
        service = Service(channel)
        figures = await overload(service, pid, seconds)
        rate = figures["capacity_tokens_per_second"] / ANSWER_TOKENS
        return {**figures, **await two_tenants(service, rate, seconds)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    options = parser.parse_args()
    worker = (sys.executable, "-m", "benchmarks.paced_worker")
    flags = [f"--step-ms={STEP_MS}", f"--slots={SLOTS}", f"--pages={PAGES}"]
    caps = [f"--max-queued-requests={MOST_QUEUED}", f"--max-tenant-queued-requests={MOST_QUEUED // 2}"]
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny_model(Path(folder) / "tiny", layers=1, max_context=1024)
        with LocalServer(model, scheduler_flags=caps, worker_flags=flags, programs=Programs(worker=worker)) as server:
            figures = asyncio.run(measure(server.address, server.children[0].pid, options.seconds))
    print(json.dumps({"target": "overload", **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
