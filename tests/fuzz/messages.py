"""Mutated gRPC messages against a whole scheduler in this process, with a paper worker that answers."""

import asyncio
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from octavo.v1 import admin_pb2 as admin
from octavo.v1 import inference_pb2 as pb
from octavo_scheduler.config import read_config
from octavo_scheduler.core.audit import violations
from octavo_scheduler.model import load_model
from octavo_scheduler.server import Scheduler

from tests.doubles.paper_process import PaperProcess
from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker
from tests.doubles.tiny_model import make_tiny_model
from tests.fuzz.findings import Findings
from tests.fuzz.leaks import leaks
from tests.fuzz.mutate import mutate_message, mutated
from tests.patience import PATIENCE, until

BATCH = 64
"""Calls at once."""
CONTEXT = 48
REFUSED = ("INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "ALREADY_EXISTS")
OTHERS = ("OK", "DEADLINE_EXCEEDED")


@dataclass(frozen=True)
class Sample:
    """A good message, and the method that takes it."""

    method: str
    message: Message
    streams: bool = False


def samples() -> list[Sample]:
    inference, steering = "/octavo.v1.InferenceService/", "/octavo.v1.AdminService/"
    ids = pb.Prompt(token_ids=pb.TokenIds(ids=[1, 2, 3, 4, 5]))
    options = pb.GenerationOptions(
        sampling=pb.SamplingOptions(temperature=0.5, top_p=0.9, seed=1, n=2),
        stopping=pb.StoppingOptions(max_tokens=3, stop=["x"], stop_token_ids=[7]),
        output=pb.OutputOptions(skip_special_tokens=True),
        scheduling=pb.SchedulingOptions(tenant="t", queue_seconds=5.0),
    )
    chat = [pb.ChatMessage(role="system", content="be brief"), pb.ChatMessage(role="user", content="hi <|im_end|>")]
    text = pb.Prompt(text="the page table")
    return [
        Sample(f"{inference}Generate", pb.GenerateRequest(prompt=text, options=options, request_id="r")),
        Sample(f"{inference}GenerateStream", pb.GenerateStreamRequest(prompt=ids, options=options), streams=True),
        Sample(f"{inference}Chat", pb.ChatRequest(messages=chat, options=options)),
        Sample(f"{inference}ChatStream", pb.ChatStreamRequest(messages=chat, options=options), streams=True),
        Sample(f"{inference}Tokenize", pb.TokenizeRequest(text="the page table")),
        Sample(f"{inference}Tokenize", pb.TokenizeRequest(chat=pb.Conversation(messages=chat), only_count=True)),
        Sample(f"{inference}Detokenize", pb.DetokenizeRequest(token_ids=[1, 2, 3], skip_special_tokens=False)),
        Sample(f"{inference}ListModels", pb.ListModelsRequest()),
        Sample(f"{inference}GetModel", pb.GetModelRequest(model="tiny")),
        Sample(f"{steering}GetStatus", admin.GetStatusRequest()),
        Sample(f"{steering}ListRequests", admin.ListRequestsRequest()),
        Sample(f"{steering}Explain", admin.ExplainRequest(request_id="r")),
        Sample(f"{steering}Abort", admin.AbortRequest(request_ids=["r"], tenant="t")),
        Sample(f"{steering}GetPageMap", admin.GetPageMapRequest(worker_id="paper", with_holders=True)),
        Sample(f"{steering}Pin", admin.PinRequest(name="p", prompt=ids, salt="s")),
        Sample(f"{steering}Unpin", admin.UnpinRequest(name="p")),
        Sample(f"{steering}ListPins", admin.ListPinsRequest()),
        Sample(f"{steering}ResumeWorker", admin.ResumeWorkerRequest(worker_id="paper")),
        Sample(f"{steering}Flush", admin.FlushRequest()),
    ]


class MessageFuzzer:
    """Sends cases in batches; after each nothing may be left of them."""

    def __init__(self, scheduler: Scheduler, channel: grpc.aio.Channel) -> None:
        self.findings = Findings()
        self.scheduler, self.channel = scheduler, channel
        self.samples = samples()
        self.encoded = [sample.message.SerializeToString() for sample in self.samples]

    async def run(self, cases: range) -> None:
        for first in range(cases.start, cases.stop, BATCH):
            batch = range(first, min(first + BATCH, cases.stop))
            before = self.accepted()
            good = await asyncio.gather(*map(self.one, batch))
            await self.settle(first)
            if self.accepted() > before + sum(good):
                self.findings.state_change(first, "a request that was refused was let in")

    def accepted(self) -> int:
        return self.scheduler.loop.core.counters.accepted

    async def one(self, case: int) -> bool:
        """Whether the request was good enough to be let in, if it asks for an answer at all."""
        draw = random.Random(case)
        number = draw.randrange(len(self.samples))
        sample, data = self.samples[number], self.data(draw, number)
        make: Any = self.channel.unary_stream if sample.streams else self.channel.unary_unary
        code, words = "OK", ""
        try:
            call = make(sample.method)(data, timeout=PATIENCE)
            if sample.streams:
                async for _ in call:
                    pass
            else:
                await call
        except grpc.aio.AioRpcError as error:
            code, words = error.code().name, error.details() or ""
        self.judge(case, code, words, data)
        return code not in REFUSED

    def data(self, draw: random.Random, number: int) -> bytes:
        if draw.randrange(3) == 0:
            return mutated(draw, self.encoded[number], self.encoded)
        message = type(self.samples[number].message)()
        message.CopyFrom(self.samples[number].message)
        for _ in range(draw.choice((1, 1, 2, 4))):
            mutate_message(draw, message)
        return message.SerializeToString()

    def judge(self, case: int, code: str, words: str, data: bytes) -> None:
        self.findings.cases += 1
        self.findings.refused += code in REFUSED
        self.findings.accepted += code in OTHERS
        if code not in (*REFUSED, *OTHERS):
            self.findings.crashes += 1
            self.findings.note(case, f"{code}: {words}")
        elif found := leaks(words, data.decode("utf-8", "replace")):
            self.findings.crashes += 1
            self.findings.note(case, f"{words!r} shows {found}")

    async def settle(self, case: int) -> None:
        """Until no request is alive; then every law holds and the loop is there."""
        core = self.scheduler.loop.core
        try:
            await until(lambda: not core.requests or self.scheduler.failed.is_set(), "requests stay")
        except AssertionError as error:
            self.findings.state_change(case, str(error))
            return
        if self.scheduler.failed.is_set():
            self.findings.state_change(case, "the loop has ended")
        elif broken := violations(core):
            self.findings.state_change(case, "; ".join(broken))


async def run_cases(first: int, count: int, folder: Path) -> Findings:
    model = load_model(make_tiny_model(folder / "tiny", vocab=VOCAB_SIZE, layers=1, max_context=CONTEXT))
    flags = ["--model", "tiny", "--listen", f"unix:{folder}/g", "--workers", f"ipc://{folder}/w"]
    scheduler = Scheduler(read_config(flags), model)
    await scheduler.start()
    worker = PaperProcess(
        scheduler.link.address, PaperWorker(page_size=16, pages=256, max_slots=64, max_step_tokens=512)
    )
    while not scheduler.loop.members:
        await asyncio.sleep(0.01)
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        fuzzer = MessageFuzzer(scheduler, channel)
        await fuzzer.run(range(first, first + count))
    await scheduler.stop(grace=0)
    worker.stop()
    return fuzzer.findings


def run(first: int, count: int) -> Findings:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run_cases(first, count, Path(folder)))
