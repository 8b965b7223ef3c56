"""`octavo scheduler --frontends 2` as processes, with a paper worker that answers when it is told to: which front a client
gets is chance, so each test knows the doors it goes through, by the ids of requests without a name."""

import asyncio
import os
import re
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from octavo.foreign import vllm_engine_pb2, vllm_engine_pb2_grpc
from octavo.v1 import admin_pb2, admin_pb2_grpc, inference_pb2_grpc
from octavo.v1 import inference_pb2 as pb
from octavo_client import AsyncClient, SamplingParams
from octavo_scheduler.frontend.wire import stay_of

from tests.doubles.paper_process import PaperProcess
from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker, answer
from tests.doubles.tiny_model import make_tiny_model
from tests.patience import PATIENCE, until
from tests.processes import module, running


@dataclass
class Served:
    """A scheduler with two front processes, and its worker. While `gate` is not set, results are kept back."""

    address: str
    scheduler: psutil.Process
    gate: threading.Event

    def front(self, number: int) -> psutil.Process:
        """The process of this number that runs now."""
        children = self.scheduler.children()
        return next(child for child in children if f"--number={number}" in child.cmdline())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("fronts")
    model = make_tiny_model(folder / "tiny", vocab=VOCAB_SIZE, layers=1)
    with serving(model, folder) as made:
        yield made


@contextmanager
def serving(model: Path, folder: Path) -> Iterator[Served]:
    steps, gate = f"ipc://{folder}/steps", threading.Event()
    gate.set()
    flags = ("--listen=127.0.0.1:0", f"--workers={steps}", "--frontends=2")
    before = set(psutil.Process().children())
    with running(module("octavo_scheduler", f"--model={model}", *flags), ready=r"on ([\d.:]+),") as match:
        (scheduler,) = set(psutil.Process().children()) - before
        paper = PaperWorker(pages=400, max_slots=32, max_step_tokens=256)
        worker = PaperProcess(steps, paper, before_result=lambda plan: wait(gate))
        yield Served(match[1], scheduler, gate)
        gate.set()
        worker.stop()


def wait(gate: threading.Event) -> None:
    gate.wait(PATIENCE)


class Door:
    """The way to one of the front processes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.inference = inference_pb2_grpc.InferenceServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)
        self.vllm = vllm_engine_pb2_grpc.VllmEngineStub(channel)

    async def stay(self) -> str:
        response = await self.inference.Generate(request("", [3], 1), timeout=PATIENCE)
        return stay_of(response.request_id)

    async def status(self) -> admin_pb2.GetStatusResponse:
        status: admin_pb2.GetStatusResponse = await self.admin.GetStatus(admin_pb2.GetStatusRequest(), timeout=PATIENCE)
        return status

    async def ids(self, name: str, prompt: list[int], count: int) -> list[int]:
        """Of the whole answer, streamed."""
        stream = self.inference.GenerateStream(streamed(name, prompt, count), timeout=PATIENCE)
        return [token async for message in stream for token in message.delta.token_ids]


def request(name: str, prompt: list[int], count: int) -> pb.GenerateRequest:
    asked = pb.Prompt(token_ids=pb.TokenIds(ids=prompt))
    options = SamplingParams(max_tokens=count, seed=0, ignore_eos=True).as_proto()
    return pb.GenerateRequest(prompt=asked, options=options, request_id=name)


def streamed(name: str, prompt: list[int], count: int) -> pb.GenerateStreamRequest:
    one = request(name, prompt, count)
    return pb.GenerateStreamRequest(prompt=one.prompt, options=one.options, request_id=name)


@asynccontextmanager
async def doors(served: Served) -> AsyncIterator[list[Door]]:
    """One to each front process, in the order of their numbers."""
    found: dict[str, Door] = {}
    async with AsyncExitStack() as stack:
        while len(found) < 2:
            options = [("grpc.use_local_subchannel_pool", 1)]
            door = Door(await stack.enter_async_context(grpc.aio.insecure_channel(served.address, options=options)))
            found[(await door.stay()).partition(".")[0]] = door
        yield [found["f0"], found["f1"]]


async def outcomes(door: Door) -> dict[str, int]:
    return {each.outcome: each.count for each in (await door.status()).service.outcomes}


async def held_pages(door: Door) -> int:
    (worker,) = (await door.status()).workers
    return worker.device.held


async def test_what_both_processes_count_is_added_up(served: Served) -> None:
    """The first one here: every answer so far was one of a plain request."""
    async with doors(served) as both:
        await asyncio.gather(*(both[n % 2].ids("", [n + 3], 3) for n in range(10)))
        for door in both:
            with pytest.raises(grpc.aio.AioRpcError):
                await door.ids("", [VOCAB_SIZE], 3)
        accepted = (await both[0].status()).counters.accepted
        assert accepted >= 12

        async def is_told() -> bool:
            now = await outcomes(both[1])
            return (now["length"], now["invalid"]) == (accepted, 2)

        await until(is_told)


async def test_streams_through_both_processes_are_those_that_they_must_be(served: Served) -> None:
    prompts = [[number + 3, 5, number % 7 + 3] * (number + 1) for number in range(12)]
    async with doors(served) as both:
        streams = [both[n % 2].ids("", prompt, 10 + n) for n, prompt in enumerate(prompts)]
        assert await asyncio.gather(*streams) == [answer(prompt, 10 + n) for n, prompt in enumerate(prompts)]


async def test_an_answer_by_its_name_is_one_answer_whichever_process_is_asked(served: Served) -> None:
    prompt = [8, 9, 10]
    async with doors(served) as both:
        served.gate.clear()
        first = asyncio.create_task(both[0].ids("mine", prompt, 30))
        await until(lambda: named(both[1], "mine"))
        second = asyncio.create_task(both[1].ids("mine", prompt, 30))
        third = both[1].inference.Generate(request("mine", prompt, 30), timeout=PATIENCE)
        assert len((await both[0].admin.ListRequests(admin_pb2.ListRequestsRequest())).requests) == 1
        served.gate.set()
        whole = answer(prompt, 30)
        assert [await first, await second] == [whole, whole]
        assert list((await third).completions[0].token_ids) == whole
        accepted = (await both[0].status()).counters.accepted
        assert await both[1].ids("mine", prompt, 30) == whole
        assert (await both[0].status()).counters.accepted == accepted, "it is known, and nothing is computed again"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await both[1].ids("mine", [8], 30)
        assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def named(door: Door, name: str) -> bool:
    present = await door.admin.ListRequests(admin_pb2.ListRequestsRequest())
    return name in {each.request_id for each in present.requests}


async def test_an_operator_finds_a_request_by_its_name_from_either_process(served: Served) -> None:
    async with doors(served) as both:
        served.gate.clear()
        tasks = [asyncio.create_task(both[n].ids(f"found-{n}", [4, 5], 40)) for n in range(2)]
        for n in range(2):
            await until(lambda: named(both[0], f"found-{n}"))  # noqa: B023
            asked = admin_pb2.ExplainRequest(request_id=f"found-{n}")
            (one,) = (await both[1 - n].admin.Explain(asked)).explanations
            assert stay_of(one.id).startswith(f"f{n}.")
            aborted = await both[1 - n].admin.Abort(admin_pb2.AbortRequest(request_ids=[f"found-{n}"]))
            assert list(aborted.ids) == [one.id]
        served.gate.set()
        for task in tasks:
            assert await task == []


async def test_a_gateway_aborts_through_any_process_what_it_began_through_another(served: Served) -> None:
    pb = vllm_engine_pb2
    asked = pb.GenerateRequest(
        request_id="gateway",
        tokenized=pb.TokenizedInput(input_ids=[5, 6]),
        sampling_params=pb.SamplingParams(max_tokens=30, ignore_eos=True),
        stream=True,
    )
    async with doors(served) as both:
        served.gate.clear()

        async def reasons() -> list[str]:
            return [each.complete.finish_reason async for each in both[0].vllm.Generate(asked, timeout=PATIENCE)]

        task = asyncio.create_task(reasons())
        await until(lambda: named(both[1], "gateway"))
        await both[1].vllm.Abort(pb.AbortRequest(request_ids=["gateway"]))
        await until(lambda: alive(both[1], 0))
        served.gate.set()
        assert (await task)[-1] == "abort"


async def test_a_process_that_is_killed_frees_its_pages_and_comes_back_while_all_streams_go_on(served: Served) -> None:
    prompts = [[number + 3, 4] for number in range(8)]
    whole = [answer(prompt, 60) for prompt in prompts]
    async with doors(served) as both, AsyncClient(served.address, resume=True) as client:
        lost = (await both[0].status()).counters.frontends_lost
        served.gate.clear()
        params = SamplingParams(max_tokens=60, seed=0, ignore_eos=True)
        asked = [client.generate(prompt, params, request_id=f"r{n}") for n, prompt in enumerate(prompts)]
        resumed = [asyncio.create_task(each) for each in asked]
        await until(lambda: named(both[0], "r7"))
        present = (await both[0].admin.ListRequests(admin_pb2.ListRequestsRequest())).requests
        (number,) = {int(stay_of(each.id)[1]) for each in present}
        beside = [asyncio.create_task(both[1 - number].ids("", prompt, 60)) for prompt in prompts]
        await until(lambda: alive(both[1 - number], 16))
        old = served.front(number)
        served.gate.set()
        os.kill(old.pid, signal.SIGKILL)
        assert await asyncio.gather(*beside) == whole, "streams of the other process skip nothing"
        assert [list((await task).outputs[0].token_ids) for task in resumed] == whole
        await until(lambda: is_zero(held_pages(both[1 - number])))
        assert (await both[1 - number].status()).counters.frontends_lost == lost + 1
    await until(lambda: any(f"--number={number}" in child.cmdline() for child in served.scheduler.children()))
    async with doors(served) as both:
        assert (await both[number].stay()) == f"f{number}.1"
        assert await both[number].ids("r0", prompts[0], 60) == whole[0], "its names are anybody's"


async def alive(door: Door, count: int) -> bool:
    return (await door.status()).live_requests == count


async def is_zero(number: Any) -> bool:
    return bool(await number == 0)


async def test_sigterm_lets_streams_of_all_processes_end(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "tiny", vocab=VOCAB_SIZE, layers=1)
    with serving(model, tmp_path) as own:
        async with doors(own) as both:
            own.gate.clear()
            tasks = [asyncio.create_task(both[n % 2].ids("", [n + 3], 50)) for n in range(6)]
            await until(lambda: alive(both[0], 6))
            own.scheduler.send_signal(signal.SIGTERM)
            await until(lambda: is_refused(both[0]))
            own.gate.set()
            assert await asyncio.gather(*tasks) == [answer([n + 3], 50) for n in range(6)]


async def is_refused(door: Door) -> bool:
    try:
        await door.inference.Generate(request("", [3], 1), timeout=0.2)
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.UNAVAILABLE
    return False


def test_a_scheduler_that_is_killed_leaves_no_process_behind_and_the_next_one_has_its_port(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "tiny", vocab=VOCAB_SIZE, layers=1)
    command = module("octavo_scheduler", f"--model={model}", f"--workers=ipc://{tmp_path}/steps", "--frontends=1")
    first = subprocess.Popen([*command, "--listen=127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    with first:
        assert first.stdout is not None
        words = re.search(r" on (127\.0\.0\.1:\d+),", first.stdout.readline())
        assert words is not None
        refused = subprocess.run(
            [*command[:-2], "--frontends=1", f"--listen={words[1]}"], capture_output=True, text=True
        )
        fronts = psutil.Process(first.pid).children()
        first.kill()
    assert refused.returncode == 2, "while the first one is there"
    assert "cannot listen on" in refused.stderr
    with running([*command, f"--listen={words[1]}"], ready=f"on {words[1]},"):
        assert psutil.wait_procs(fronts, PATIENCE)[1] == []
