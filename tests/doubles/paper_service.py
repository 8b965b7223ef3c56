"""A whole scheduler in this process, with gRPC in front and a paper worker that answers when it is told to."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from octavo.v1 import inference_pb2 as pb
from octavo.v1 import inference_pb2_grpc, step_pb2
from octavo_client.client import AsyncClient
from octavo_client.params import SamplingParams
from octavo_scheduler.config import read_config
from octavo_scheduler.model import ServedModel
from octavo_scheduler.server import Scheduler

from tests.doubles.paper_process import PaperProcess
from tests.doubles.paper_worker import PaperWorker
from tests.patience import PATIENCE, until


class PaperService:
    """`client` and `channel` speak to it. While `is_open` is not set, the worker keeps its results to itself."""

    def __init__(
        self, scheduler: Scheduler, client: AsyncClient, channel: grpc.aio.Channel, worker: PaperWorker
    ) -> None:
        self.scheduler = scheduler
        self.client = client
        self.channel = channel
        self.stub = inference_pb2_grpc.InferenceServiceStub(channel)
        self.is_open = threading.Event()
        self.process = PaperProcess(scheduler.link.address, worker, name="w0", before_result=self._wait)

    def _wait(self, plan: step_pb2.StepPlan) -> None:
        self.is_open.wait(PATIENCE)

    def ask(self, name: str, prompt: list[int], max_tokens: int = 8, tenant: str = "") -> "asyncio.Task[list[int]]":
        """Asks for an answer under this request_id; the task brings its token ids."""
        options = SamplingParams(max_tokens=max_tokens, seed=0, ignore_eos=True).as_proto()
        options.scheduling.tenant = tenant
        asked = pb.Prompt(token_ids=pb.TokenIds(ids=prompt))

        async def answer() -> list[int]:
            request = pb.GenerateRequest(prompt=asked, options=options, request_id=name)
            return list((await self.stub.Generate(request)).completions[0].token_ids)

        return asyncio.create_task(answer())

    async def ask_in_one_plan(self, *asked: tuple[str, list[int]]) -> "list[asyncio.Task[list[int]]]":
        """Asks for these answers, in this order. All that fit begin with the same plan, whose result the worker keeps.

        Where names come twice, each request has a tenant of its own.
        """
        requests = self.scheduler.loop.core.requests
        await self.client.drain_worker("w0")
        tasks = []
        have_tenants = len({name for name, _ in asked}) < len(asked)
        for number, (name, prompt) in enumerate(asked):
            tasks.append(self.ask(name, prompt, tenant=str(number) if have_tenants else ""))
            await until(lambda: len(requests) == len(tasks))
        await self.client.resume_worker("w0")
        await until(lambda: bool(self.scheduler.loop.core.workers["w0"].running))
        return tasks


@asynccontextmanager
async def paper_service(
    model: ServedModel, folder: Path, worker: PaperWorker, *flags: str
) -> AsyncIterator[PaperService]:
    """Runs one; sockets lie in `folder`. `flags` are further ones of the scheduler."""
    scheduler = Scheduler(
        read_config(["--model", "tiny", "--listen", f"unix:{folder}/g", "--workers", f"ipc://{folder}/w", *flags]),
        model,
    )
    await scheduler.start()
    async with AsyncClient(scheduler.address) as client, grpc.aio.insecure_channel(scheduler.address) as channel:
        service = PaperService(scheduler, client, channel, worker)
        await until(lambda: "w0" in scheduler.loop.core.workers)
        yield service
        service.is_open.set()
    await scheduler.stop(grace=0)
    service.process.stop()
