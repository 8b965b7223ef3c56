"""What streaming costs, and how long a token takes from the worker's result to the client: with and without front processes.

A worker that computes nothing paces the steps, so that the front is what is measured: tokens by the CPU seconds of the
processes that serve clients. Without front processes that is the scheduler, which does its own work in it too. Each token
tells its step, and a file that this process and the worker share when that step's result was sent. Client, worker and
scheduler share the machine's cores with the fronts, so that times include what they take from each other.

Prints a line for each row of the table and then one of JSON: for each number of front processes and of streams
`tok_s_per_core` (tokens by CPU seconds of the processes that serve clients), `all_tok_s_per_core` (the scheduler's own
counted too), `tok_s`, `p50_ms` and `p99_ms`, and the share of the processors that `others` had, which should be 0.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
import psutil
from octavo.v1 import inference_pb2 as pb
from octavo.v1 import inference_pb2_grpc
from octavo_client.local import LocalServer, Programs
from octavo_scheduler.frontend.wire import stay_of
from octavo_scheduler.offline.meter import percentile

from benchmarks.machine import Watch, machine
from benchmarks.paced_worker import TOKEN, Stamps
from tests.doubles.tiny_model import make_tiny_model

FRONTENDS, STREAMS, SECONDS = (0, 1, 2), (32, 128, 256), 6.0
STEP_MS, CONTEXT, VOCABULARY = 20.0, 4096, 900
CONNECTIONS = 8
"""To each front process."""


class Meter:
    """What clients see while `is_on`."""

    def __init__(self, stamps: Stamps) -> None:
        self.is_on = False
        self.num_begun = 0
        self.milliseconds: list[float] = []
        self._stamps = stamps

    async def follow(self, stub: Any, request: pb.GenerateStreamRequest) -> None:
        async for message in stub.GenerateStream(request):
            now = time.monotonic()
            self.num_begun += message.HasField("start")
            if self.is_on:
                self.milliseconds += [1000 * (now - self._stamps.at[id - TOKEN]) for id in message.delta.token_ids]


@asynccontextmanager
async def connections(address: str, num_fronts: int) -> AsyncIterator[list[Any]]:
    """As many to each front process, in turn: which one takes a connection is chance."""
    found: dict[str, list[Any]] = {}
    async with AsyncExitStack() as stack:
        while len(found) < num_fronts or min(map(len, found.values())) < CONNECTIONS:
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
            stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
            answered = await stub.Generate(pb.GenerateRequest(prompt=_prompt(0), options=_options(1)))
            found.setdefault(stay_of(answered.request_id), []).append(stub)
        yield [stub for stubs in zip(*found.values(), strict=False) for stub in stubs][: CONNECTIONS * num_fronts]


def _prompt(number: int) -> pb.Prompt:
    return pb.Prompt(token_ids=pb.TokenIds(ids=[3 + number % 256, 3 + number // 256]))


def _options(num_tokens: int) -> pb.GenerationOptions:
    return pb.GenerationOptions(stopping=pb.StoppingOptions(max_tokens=num_tokens, ignore_eos=True))


async def measure(server: LocalServer, stamps: Stamps, num_frontends: int, num_streams: int, seconds: float) -> Any:
    """One cell of the table."""
    meter = Meter(stamps)
    async with connections(server.address, max(num_frontends, 1)) as stubs:
        asked = [pb.GenerateStreamRequest(prompt=_prompt(n), options=_options(CONTEXT - 8)) for n in range(num_streams)]
        tasks = [asyncio.create_task(meter.follow(stub, one)) for stub, one in zip(cycle(stubs), asked, strict=False)]
        while meter.num_begun < num_streams:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        watch = Watch()
        before, began, meter.is_on = _cpu_seconds(server), time.monotonic(), True
        await asyncio.sleep(seconds)
        meter.is_on, took, after = False, time.monotonic() - began, _cpu_seconds(server)
        others = watch.others_share()
        assert not any(task.done() for task in tasks), "a stream ended while it was measured"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    scheduler, fronts = (b - a for a, b in zip(before, after, strict=True))
    num_tokens = len(meter.milliseconds)
    return {
        "tok_s_per_core": round(num_tokens / (fronts if num_frontends else scheduler)),
        "all_tok_s_per_core": round(num_tokens / (scheduler + fronts)),
        "tok_s": round(num_tokens / took),
        "p50_ms": round(percentile(meter.milliseconds, 0.5) or 0.0, 2),
        "p99_ms": round(percentile(meter.milliseconds, 0.99) or 0.0, 2),
        "others": None if others is None else round(others, 2),
    }


def _cpu_seconds(server: LocalServer) -> tuple[float, float]:
    """Of the scheduler, and of its front processes together."""
    scheduler = psutil.Process(server.children[0].pid)
    times = [process.cpu_times() for process in (scheduler, *scheduler.children())]
    used = [each.user + each.system for each in times]
    return used[0], sum(used[1:])


def run(num_frontends: int, streams: Sequence[int], seconds: float = SECONDS) -> dict[str, Any]:
    """A row of the table, by the number of streams."""
    with tempfile.TemporaryDirectory(prefix="octavo-front-") as folder:
        model, stamps = make_tiny_model(Path(folder, "m"), vocab=VOCABULARY, layers=1), Path(folder, "stamps")
        shared = Stamps(stamps)
        most = max(streams)
        pages = most * CONTEXT // 16
        server = LocalServer(
            model,
            listen="127.0.0.1:0",
            scheduler_flags=[f"--frontends={num_frontends}", f"--max-num-seqs={most}"],
            worker_flags=[
                *(f"--step-ms={STEP_MS}", f"--slots={most}", f"--pages={pages}", f"--context={CONTEXT}"),
                *(f"--vocabulary={VOCABULARY}", f"--stamps={stamps}"),
            ],
            programs=Programs(worker=(sys.executable, "-m", "benchmarks.paced_worker")),
        )
        with server:
            return {
                str(count): asyncio.run(measure(server, shared, num_frontends, count, seconds)) for count in streams
            }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement")
    options = parser.parse_args()
    figures: dict[str, Any] = {"machine": machine()}
    for number in FRONTENDS:
        row = figures[f"frontends {number}"] = run(number, STREAMS, options.seconds)
        print(f"frontends {number}: {json.dumps(row)}", flush=True)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
