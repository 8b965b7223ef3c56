"""A service that is used for long: what it does not give back adds up and shows.

Of every hundred requests twenty are cancelled, five run past their deadline and two are malformed; what the others answer is
compared with what the same request was answered at first. Every tenant is new, so that nothing kept for each goes
unnoticed. Of every thousand requests a worker dies, and another one joins. After each block of requests all leave, caches
are flushed, and the scheduler's process is measured.
"""

import asyncio
import gc
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
from octavo.v1 import admin_pb2, admin_pb2_grpc, inference_pb2_grpc
from octavo.v1 import inference_pb2 as pb

from tests.faults.cluster import Cluster, finish
from tests.faults.malformed import malformed
from tests.faults.scheduler import SAYS
from tests.faults.streams import Asked, some_requests
from tests.patience import PATIENCE

WIDTH, WORKERS = 24, 3
CANCELLED, LATE, MALFORMED = 20, 5, 2
"""Of a hundred."""
REQUESTS_PER_KILL = 1000
LONG_TOKENS = 300
"""Of an answer that nobody waits for: paper takes more than half a second for it."""
MOST_LATE_SECONDS = 0.06
MOST_LOOKS = 10
LEAVING_SECONDS = 0.2
"""Until a connection that was closed here is closed there too."""

OUTCOMES = ("answered", "cancelled", "late", "refused")
Answer = list[list[int]]


@dataclass
class Tally:
    """Of requests."""

    outcomes: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    problems: list[str] = field(default_factory=list)


class Service:
    """The client's side of it: one connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.inference: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(channel)

    async def whole(self, request: pb.GenerateStreamRequest, *, streamed: bool) -> Answer:
        """The ids of each branch."""
        found: Answer = [[] for _ in range(request.options.sampling.n)]
        if not streamed:
            plain = pb.GenerateRequest.FromString(request.SerializeToString())
            for completion in (await self.inference.Generate(plain)).completions:
                found[completion.branch] += completion.token_ids
            return found
        async for event in self.inference.GenerateStream(request):
            if event.delta.first_index != len(found[event.delta.branch]) and event.delta.token_ids:
                raise AssertionError("a stream has a gap, or says something twice")
            found[event.delta.branch] += event.delta.token_ids
        return found

    async def cancelled(self, request: pb.GenerateStreamRequest, num_messages: int) -> None:
        """Left after so many messages."""
        call = self.inference.GenerateStream(request)
        for _ in range(num_messages):
            await call.read()
        call.cancel()
        while not call.done():
            await asyncio.sleep(0)

    async def late(self, request: pb.GenerateStreamRequest, seconds: float) -> grpc.StatusCode:
        """How it ends."""
        call = self.inference.GenerateStream(request, timeout=seconds)
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError:
            pass
        code: grpc.StatusCode = await call.code()
        return code


def request_of(asked: Asked, number: int, max_tokens: int | None = None) -> pb.GenerateStreamRequest:
    """Every third has the tenant of the one before, every fourth a name."""
    options = asked.params.as_proto()
    options.scheduling.tenant = f"tenant {number - number % 3 // 2}"
    options.stopping.max_tokens = max_tokens or asked.max_tokens
    return pb.GenerateStreamRequest(
        prompt=pb.Prompt(token_ids=pb.TokenIds(ids=asked.prompt)),
        options=options,
        request_id="" if number % 4 else f"name {number}",
    )


class Soak:
    """Of one cluster, whose scheduler is `tests.faults.scheduler`."""

    def __init__(self, made: Cluster, kept_seconds: float) -> None:
        self.made, self.kept_seconds = made, kept_seconds
        self.requests = some_requests(18, max_tokens=12)
        self.truth: dict[Asked, Answer] = {}
        self._replacing: asyncio.Lock  # of the event loop of a block

    async def begin(self) -> None:
        """Workers join, and the right answers are learned."""
        while len(self.made.workers) < WORKERS:
            await asyncio.to_thread(self.made.start_worker)
        async with self._service() as service:
            for asked in self.requests:
                self.truth[asked] = await service.whole(request_of(asked, 1), streamed=True)

    async def block(self, first: int, count: int) -> dict[str, Any]:
        """Requests `first` to `first + count`, and what is left when all of them have gone."""
        tally, numbers, self._replacing = Tally(), iter(range(first, first + count)), asyncio.Lock()
        async with self._service() as service:
            before = await self._counters(service)

            async def one_after_the_other() -> None:
                for number in numbers:
                    await self._one(service, number, tally)

            await asyncio.gather(*(one_after_the_other() for _ in range(WIDTH)))
        left = await self.rest()
        async with self._service() as service:
            after = await self._counters(service)
        if dead := self.made.reap():
            tally.problems.append(f"{dead} died by themselves")
        return {
            "requests": count,
            **{name: tally.outcomes[name] for name in OUTCOMES},
            "accepted": after.accepted - before.accepted,
            "terminal": after.ended - before.ended,
            "kills": tally.kills,
            "left": left,
            "problems": tally.problems,
        }

    @asynccontextmanager
    async def _service(self) -> AsyncIterator[Service]:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(self.made.address, options=options) as channel:
            yield Service(channel)

    @staticmethod
    async def _counters(service: Service) -> admin_pb2.Counters:
        counters: admin_pb2.Counters = (await service.admin.GetStatus(admin_pb2.GetStatusRequest())).counters
        return counters

    async def _one(self, service: Service, number: int, tally: Tally) -> None:
        if number % REQUESTS_PER_KILL == REQUESTS_PER_KILL // 2:
            tally.kills += 1
            await self._replace_a_worker()
        try:
            outcome = await self._outcome(service, number)
        except (grpc.aio.AioRpcError, AssertionError) as error:
            tally.problems.append(f"request {number}: {error}")
        else:
            tally.outcomes[outcome] += 1

    async def _outcome(self, service: Service, number: int) -> str:
        asked, place = self.requests[number % len(self.requests)], number * 37 % 100
        if place < CANCELLED:
            await service.cancelled(request_of(asked, number, LONG_TOKENS), num_messages=number % 4)
            return "cancelled"
        if place < CANCELLED + LATE:
            seconds = random.Random(number).uniform(0.001, MOST_LATE_SECONDS)
            code = await service.late(request_of(asked, number, LONG_TOKENS), seconds)
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED, f"a late one ends with {code}"
            return "late"
        if place < CANCELLED + LATE + MALFORMED:
            code = await malformed(service.channel, number)
            assert code is not grpc.StatusCode.OK, "a malformed one is answered"
            return "refused"
        found = await service.whole(request_of(asked, number), streamed=bool(number % 5))
        assert found == self.truth[asked], "it is answered otherwise than at first"
        return "answered"

    async def _replace_a_worker(self) -> None:
        """The oldest one dies that is not the first of all, which stays to be measured."""
        async with self._replacing:
            name = list(self.made.workers)[1]
            process = self.made.workers.pop(name)
            os.kill(process.pid, signal.SIGKILL)
            await asyncio.to_thread(finish, process)
            await asyncio.to_thread(self.made.start_worker)

    async def rest(self) -> dict[str, Any]:
        """Waits until named answers are forgotten, which the next request sees to; flushes, leaves, and looks."""
        for _ in range(MOST_LOOKS):
            await asyncio.sleep(self.kept_seconds)
            async with self._service() as service:
                await service.whole(request_of(self.requests[0], 1), streamed=False)
                await service.admin.Flush(admin_pb2.FlushRequest())
            gc.collect()  # calls in cycles keep the connections they were made over
            await asyncio.sleep(LEAVING_SECONDS)
            left = await asyncio.to_thread(self._look)
            if left["pages_free"] == left["pages_total"] and not any(left[name] for name in MAPS):
                break
        return left

    def _look(self) -> dict[str, Any]:
        """What the scheduler says it holds, and what the system says of its process and of the oldest worker's."""
        assert self.made.scheduler is not None
        seen = len(self.made.lines)
        os.kill(self.made.scheduler.pid, signal.SIGUSR1)
        deadline = time.monotonic() + PATIENCE
        while not (said := [line for _, line in self.made.lines[seen:] if line.startswith(SAYS)]):
            assert time.monotonic() < deadline, "the scheduler does not say what it holds"
            time.sleep(0.01)
        scheduler = psutil.Process(self.made.scheduler.pid)
        worker = psutil.Process(next(iter(self.made.workers.values())).pid)
        kinds = open_kinds(scheduler)
        return {
            **json.loads(said[0].removeprefix(SAYS)),
            "rss": scheduler.memory_info().rss,
            "descriptors": scheduler.num_fds(),
            "open": kinds,
            "clients": sum(count for kind, count in kinds.items() if kind.endswith(psutil.CONN_ESTABLISHED)),
            "threads": scheduler.num_threads(),
            "worker_rss": worker.memory_info().rss,
            "worker_descriptors": worker.num_fds(),
        }


def open_kinds(process: psutil.Process) -> dict[str, int]:
    """What a process has open: connections by family and state, all else by what it is."""
    connections = {each.fd: f"{each.family.name} {each.status}" for each in process.net_connections("all")}
    kinds = Counter[str]()
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            kinds[connections.get(int(entry.name)) or re.sub(r":\[\d+\]$", "", os.readlink(entry))] += 1
    return dict(kinds)


MAPS = (
    "requests",
    "waiting",
    "sequences",
    "plans_in_flight",
    "transcripts",
    "labels",
    "kept",
    "readers",
    "aside",
    "clients",
)
"""What is empty when all have gone."""
