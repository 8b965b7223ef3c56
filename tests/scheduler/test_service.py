"""The whole scheduler in this process: gRPC in front, a paper worker behind a real socket."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from octavo.v1 import admin_pb2, admin_pb2_grpc, inference_pb2_grpc, step_pb2
from octavo.v1 import inference_pb2 as pb
from octavo_scheduler import front
from octavo_scheduler.config import read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.event_log import EventLog, Submit
from octavo_scheduler.keys import main as make_keys
from octavo_scheduler.model import ServedModel
from octavo_scheduler.offline.replay import replay
from octavo_scheduler.server import Scheduler

from tests.doubles.paper_process import PaperProcess
from tests.doubles.paper_service import paper_service
from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker, answer
from tests.patience import PATIENCE, until

NAME = "octavo.v1.InferenceService"


@dataclass
class Running:
    scheduler: Scheduler
    channel: grpc.aio.Channel
    worker: PaperProcess

    @property
    def stub(self) -> Any:
        return inference_pb2_grpc.InferenceServiceStub(self.channel)

    async def status(self) -> admin_pb2.GetStatusResponse:
        admin: Any = admin_pb2_grpc.AdminServiceStub(self.channel)
        status: admin_pb2.GetStatusResponse = await admin.GetStatus(admin_pb2.GetStatusRequest())
        return status

    async def until_free(self) -> admin_pb2.GetStatusResponse:
        """The status once nothing is held; fails when that does not come."""

        async def is_free() -> bool:
            status = await self.status()
            pages = status.workers[0].device
            return pages.free + pages.cached == pages.total and not status.live_requests

        await until(is_free, "pages stay held")
        return await self.status()


@pytest.fixture
async def running(model: ServedModel, tmp_path: Path) -> AsyncIterator[Running]:
    config = read_config(["--model", "tiny", "--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w"])
    scheduler = Scheduler(config, model)
    await scheduler.start()
    worker = PaperProcess(scheduler.link.address, PaperWorker(page_size=4, pages=64, host_pages=16))
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        async for state in health.Watch(health_pb2.HealthCheckRequest(service=NAME)):
            if state.status == health_pb2.HealthCheckResponse.SERVING:
                break
        yield Running(scheduler, channel, worker)
    await scheduler.stop(grace=0)
    worker.stop()


def request(ids: list[int], max_tokens: int | None = 8, **stopping: Any) -> dict[str, Any]:
    options = pb.GenerationOptions(
        sampling=pb.SamplingOptions(seed=0),
        stopping=pb.StoppingOptions(max_tokens=max_tokens, ignore_eos=True, **stopping),
        output=pb.OutputOptions(skip_special_tokens=False),
    )
    return {"prompt": pb.Prompt(token_ids=pb.TokenIds(ids=ids)), "options": options}


async def test_a_stream_is_one_start_deltas_and_one_end(running: Running) -> None:
    events = [
        e async for e in running.stub.GenerateStream(pb.GenerateStreamRequest(**request([5, 6, 7]), request_id="mine"))
    ]
    assert {event.request_id for event in events} == {"mine"}
    assert [event.WhichOneof("event") for event in events] == ["start", *["delta"] * (len(events) - 2), "end"]
    deltas = [event.delta for event in events[1:-1]]
    ids = [token for delta in deltas for token in delta.token_ids]
    assert ids == answer([5, 6, 7], 8)
    position = 0
    for delta in deltas:
        assert delta.first_index == position
        position += len(delta.token_ids)
    end = events[-1].end
    assert end.branches[0].finish.reason == pb.FINISH_REASON_LENGTH
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (3, 8)
    assert 0 < end.timings.first_token_seconds <= end.timings.total_seconds
    vocabulary = running.scheduler.front.model.vocabulary
    assert "".join(delta.text for delta in deltas) == vocabulary.decode(ids, skip_special_tokens=False)


async def test_a_whole_answer_equals_the_stream(running: Running) -> None:
    response = await running.stub.Generate(pb.GenerateRequest(**request([9, 8])))
    assert list(response.completions[0].token_ids) == answer([9, 8], 8)
    assert response.request_id
    assert response.usage.completion_tokens == 8


async def test_ST05_ST06_a_stop_string_ends_an_answer_that_is_streamed_or_whole_and_the_worker_computes_no_further(
    running: Running,
) -> None:
    vocabulary = running.scheduler.front.model.vocabulary
    ids = answer([4, 2], 40)
    whole = vocabulary.decode(ids, skip_special_tokens=False)
    stop = whole[10:13]
    response = await running.stub.Generate(pb.GenerateRequest(**request([4, 2], 40, stop=[stop])))
    completion = response.completions[0]
    assert completion.text == whole[: whole.find(stop)]
    assert completion.finish.reason == pb.FINISH_REASON_STOP
    assert completion.finish.stop == stop
    assert list(completion.token_ids) == ids[: len(completion.token_ids)]
    assert response.usage.completion_tokens == len(completion.token_ids) < 40
    status = await running.until_free()
    assert status.counters.cancelled == 0
    assert status.counters.generated_tokens < 40, "the worker was told"
    asked = pb.GenerateStreamRequest(**request([4, 2], 40, stop=[stop]))
    events = [event async for event in running.stub.GenerateStream(asked)]
    assert "".join(event.delta.text for event in events) == completion.text
    assert [token for event in events for token in event.delta.token_ids] == list(completion.token_ids)
    assert events[-1].end.branches[0].finish == completion.finish
    assert events[-1].end.usage.completion_tokens == response.usage.completion_tokens


async def test_ST10_a_stop_token_is_named_is_the_last_of_the_ids_and_counts_streamed_or_whole(running: Running) -> None:
    ids = answer([4, 2], 10)
    asked = request([4, 2], 10, stop_token_ids=[ids[5]])
    response = await running.stub.Generate(pb.GenerateRequest(**asked))
    completion = response.completions[0]
    expected = ids[: ids.index(ids[5]) + 1]
    assert list(completion.token_ids) == expected
    assert completion.finish.token_id == ids[5]
    assert response.usage.completion_tokens == len(expected)
    events = [event async for event in running.stub.GenerateStream(pb.GenerateStreamRequest(**asked))]
    assert [token for event in events for token in event.delta.token_ids] == expected
    assert events[-1].end.branches[0].finish.token_id == ids[5]
    assert events[-1].end.usage.completion_tokens == len(expected)


def branches(prompt: list[int], n: int, max_tokens: int, stop_token_ids: Collection[int] = ()) -> list[list[int]]:
    """The right answers, each up to its first stop token."""
    answers = [answer(prompt, max_tokens, 0, branch) for branch in range(n)]
    ends = [next((i for i, token in enumerate(ids) if token in stop_token_ids), max_tokens) + 1 for ids in answers]
    return [ids[:end] for ids, end in zip(answers, ends, strict=True)]


def several(ids: list[int], n: int, max_tokens: int, **stopping: Any) -> dict[str, Any]:
    message = request(ids, max_tokens, **stopping)
    message["options"].sampling.n = n
    return message


@pytest.mark.parametrize("n", [2, 4, 8])
async def test_PA01_a_whole_answer_has_exactly_n_completions_in_order_whichever_ends_first(
    running: Running, n: int
) -> None:
    """Ten requests at once, on eight slots; each branch has a stop token that comes at another step of its answer."""

    async def ask(number: int) -> None:
        prompt = [number, 7, n]
        stop = {answer(prompt, 24, 0, branch)[(5 * branch + number) % 23] for branch in range(n)}
        expected = branches(prompt, n, 24, stop)
        assert len({len(ids) for ids in expected}) > 1
        message = several(prompt, n, 24, stop_token_ids=sorted(stop))
        response = await running.stub.Generate(pb.GenerateRequest(**message))
        assert [completion.branch for completion in response.completions] == list(range(n))
        assert [list(completion.token_ids) for completion in response.completions] == expected
        assert all(c.finish.token_id == c.token_ids[-1] for c in response.completions if len(c.token_ids) < 24)
        assert response.usage.prompt_tokens == len(prompt)
        assert response.usage.completion_tokens == sum(map(len, expected))

    await asyncio.gather(*(ask(number) for number in range(10)))
    status = await running.until_free()
    assert (status.counters.accepted, status.counters.ended, status.counters.cancelled) == (10, 10, 0)


@pytest.mark.parametrize("n", [2, 5])
async def test_PA02_in_a_stream_each_branch_has_the_text_of_its_own_tokens(running: Running, n: int) -> None:
    call = running.stub.GenerateStream(pb.GenerateStreamRequest(**several([5, 6, 7], n, 20)))
    events = [event async for event in call]
    assert [event.WhichOneof("event") for event in events] == ["start", *["delta"] * (len(events) - 2), "end"]
    vocabulary = running.scheduler.front.model.vocabulary
    for branch, expected in enumerate(branches([5, 6, 7], n, 20)):
        deltas = [event.delta for event in events[1:-1] if event.delta.branch == branch]
        position = 0
        for delta in deltas:
            assert delta.first_index == position
            position += len(delta.token_ids)
        assert [token for delta in deltas for token in delta.token_ids] == expected
        assert "".join(delta.text for delta in deltas) == vocabulary.decode(expected, skip_special_tokens=False)
    assert [end.branch for end in events[-1].end.branches] == list(range(n))
    assert events[-1].end.usage.completion_tokens == 20 * n


async def test_a_stop_string_ends_its_branch_while_the_others_go_on(running: Running) -> None:
    vocabulary = running.scheduler.front.model.vocabulary
    whole = [vocabulary.decode(ids, skip_special_tokens=False) for ids in branches([4, 2], 3, 40)]
    stop = whole[1][10:13]
    assert [stop in text for text in whole] == [False, True, False]
    response = await running.stub.Generate(pb.GenerateRequest(**several([4, 2], 3, 40, stop=[stop])))
    assert [c.text for c in response.completions] == [whole[0], whole[1][: whole[1].find(stop)], whole[2]]
    assert [c.finish.WhichOneof("matched") for c in response.completions] == [None, "stop", None]
    assert [len(c.token_ids) < 40 for c in response.completions] == [False, True, False]
    assert response.usage.completion_tokens == sum(len(c.token_ids) for c in response.completions)
    status = await running.until_free()
    assert status.counters.cancelled == 0


@pytest.mark.parametrize("preempt", ["swap", "drop"])
async def test_PS02_in_a_pool_too_small_for_all_branches_each_ends_exactly_once(
    model: ServedModel, tmp_path: Path, preempt: str
) -> None:
    """Four branches of 29 tokens need 26 pages of 4; there are 11, of which one branch alone needs 8."""
    flags = ["--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w", "--preempt", preempt]
    scheduler = Scheduler(read_config(["--model", "tiny", *flags]), model)
    await scheduler.start()
    worker = PaperProcess(scheduler.link.address, PaperWorker(page_size=4, pages=11, host_pages=32))
    prompt = list(range(1, 10))
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        running = Running(scheduler, channel, worker)
        call = running.stub.GenerateStream(pb.GenerateStreamRequest(**several(prompt, 4, 20)))
        events = [event async for event in call]
        found = [[t for e in events if e.delta.branch == b for t in e.delta.token_ids] for b in range(4)]
        assert found == branches(prompt, 4, 20)
        end = events[-1].end
        assert [(e.branch, e.finish.reason) for e in end.branches] == [(b, pb.FINISH_REASON_LENGTH) for b in range(4)]
        assert end.timings.preemptions > 0
        status = await running.until_free()
        assert (status.counters.ended, status.counters.audit_violations) == (1, 0)
    await scheduler.stop(grace=0)
    worker.stop()


async def test_a_cancelled_stream_gives_the_pages_of_all_its_branches_back(running: Running) -> None:
    call = running.stub.GenerateStream(pb.GenerateStreamRequest(**several([1, 2, 3], 6, 200)))
    seen = set()
    async for event in call:
        if event.WhichOneof("event") == "delta":
            seen.add(event.delta.branch)
        if len(seen) == 6:
            break
    call.cancel()
    status = await running.until_free()
    assert status.counters.cancelled == 1


async def test_RI01_RI02_requests_under_one_name_in_one_moment_each_get_their_own_answer(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of arrivals stands still and the clients of all tenants choose the same id."""
    moment = time.monotonic()
    monkeypatch.setattr(front, "time", SimpleNamespace(monotonic=lambda: moment))
    asked = [[number, 7, number] for number in range(50)]
    messages = [pb.GenerateRequest(**request(ids, 4), request_id="same") for ids in asked]
    for number, message in enumerate(messages):
        message.options.scheduling.tenant = f"tenant {number}"
    responses = await asyncio.gather(*map(running.stub.Generate, messages))
    assert [list(r.completions[0].token_ids) for r in responses] == [answer(ids, 4) for ids in asked]
    assert {r.request_id for r in responses} == {"same"}
    ids = [running.scheduler.front.arrival(None).id for _ in range(50)]
    assert len(set(ids)) == len({id_[:16] for id_ in ids}) == 50
    assert {len(bytes.fromhex(id_)) * 8 for id_ in ids} == {128}
    await running.until_free()


class Garbling(PaperWorker):
    """Says tokens that there are none of, in its third result; what comes after is right."""

    token = 0
    num_results = 0

    def execute(self, plan: step_pb2.StepPlan) -> step_pb2.StepResult:
        result = super().execute(plan)
        self.num_results += 1
        if self.num_results == 3:
            result.token = np.full(len(result.token) // 4, self.token, "<i4").tobytes()
        return result


@pytest.mark.parametrize("token", [-2, VOCAB_SIZE, -(2**31), 2**31 - 1])
async def test_DT10_a_token_that_no_vocabulary_has_reaches_no_client_and_all_answers_are_right(
    model: ServedModel, tmp_path: Path, token: int
) -> None:
    worker = Garbling(page_size=4, pages=64)
    worker.token = token
    async with paper_service(model, tmp_path, worker) as service:
        service.is_open.set()
        prompts = [[5, 6, 7], [8, 9], [10]]
        asked = [service.ask("", prompt) for prompt in prompts]
        assert await asyncio.gather(*asked) == [answer(prompt, 8) for prompt in prompts]
        assert worker.num_results > 3


async def test_a_chat_goes_through_the_template(running: Running) -> None:
    model = running.scheduler.front.model
    assert model.template is not None
    prompt = model.vocabulary.encode_chat(model.template, [("user", "hi")])
    options = request([], 5)["options"]
    response = await running.stub.Chat(
        pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="hi")], options=options)
    )
    assert list(response.completions[0].token_ids) == answer(prompt, 5)
    stream = running.stub.ChatStream(
        pb.ChatStreamRequest(messages=[pb.ChatMessage(role="user", content="hi")], options=options)
    )
    ids = [token async for event in stream for token in event.delta.token_ids]
    assert ids == answer(prompt, 5)


async def test_CA01_a_cancelled_stream_gives_its_pages_back(running: Running) -> None:
    async def cut(n: int) -> None:
        call = running.stub.GenerateStream(pb.GenerateStreamRequest(**request([n, 1], 200)))
        async for event in call:
            if event.WhichOneof("event") == "delta":
                break
        call.cancel()

    await asyncio.gather(*(cut(n) for n in range(12)))
    status = await running.until_free()
    assert status.counters.cancelled == 12
    assert status.counters.accepted == status.counters.ended == 12
    assert not running.scheduler.front.live


async def test_CA02_a_stream_that_ends_by_itself_is_not_aborted(running: Running) -> None:
    await asyncio.gather(*(running.stub.Generate(pb.GenerateRequest(**request([n]))) for n in range(20)))
    status = await running.until_free()
    assert (status.counters.ended, status.counters.cancelled) == (20, 0)


async def test_a_clients_deadline_ends_the_request(running: Running) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.stub.Generate(pb.GenerateRequest(**request([1], 250)), timeout=0.02)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await running.until_free()


async def test_requests_that_cannot_be_served_get_a_status_and_change_nothing(running: Running) -> None:
    async def refusal(message: Message) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.stub.Generate(message)
        return caught.value.code(), caught.value.details() or ""

    invalid = grpc.StatusCode.INVALID_ARGUMENT
    assert (await refusal(pb.GenerateRequest()))[0] is invalid
    code, sentence = await refusal(pb.GenerateRequest(**request([1] * 300)))
    assert code is invalid
    assert "need 77 pages of 4 tokens; the largest pool has 64" in sentence
    assert await refusal(pb.GenerateRequest(**request([900]))) == (
        invalid,
        "token id 900 is outside the vocabulary of 900 tokens",
    )
    assert (await refusal(pb.GenerateRequest(model="other", **request([1]))))[0] is grpc.StatusCode.NOT_FOUND
    status = await running.until_free()
    assert status.counters.accepted == 0
    assert list((await running.stub.Generate(pb.GenerateRequest(**request([3])))).completions[0].token_ids) == answer(
        [3], 8
    )


async def test_a_draining_scheduler_refuses_new_requests_and_ends_running_ones(running: Running) -> None:
    call = running.stub.GenerateStream(pb.GenerateStreamRequest(**request([1, 2], 60)))
    events = aiter(call)
    assert (await anext(events)).WhichOneof("event") == "start"
    running.scheduler.front.is_draining = True
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.stub.Generate(pb.GenerateRequest(**request([1])))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    ids = [token async for event in events for token in event.delta.token_ids]
    assert ids == answer([1, 2], 60)


async def test_an_open_health_watch_does_not_hold_up_the_end(model: ServedModel, tmp_path: Path) -> None:
    config = read_config(["--model", "tiny", "--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w"])
    scheduler = Scheduler(config, model)
    await scheduler.start()
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        watch = aiter(health.Watch(health_pb2.HealthCheckRequest(service=NAME)))
        await anext(watch)
        await asyncio.wait_for(scheduler.stop(grace=PATIENCE), timeout=PATIENCE / 2)


async def test_a_running_stream_may_end_while_the_scheduler_stops(model: ServedModel, tmp_path: Path) -> None:
    config = read_config(["--model", "tiny", "--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w"])
    scheduler = Scheduler(config, model)
    await scheduler.start()
    worker = PaperProcess(scheduler.link.address, PaperWorker(pages=64))
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        events = aiter(stub.GenerateStream(pb.GenerateStreamRequest(**request([1, 2], 100))))
        await anext(events)
        stopping = asyncio.create_task(scheduler.stop(grace=PATIENCE))
        ids = [token async for event in events for token in event.delta.token_ids]
        assert ids == answer([1, 2], 100)
        await stopping
    worker.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_when_the_loop_fails_the_scheduler_says_so(model: ServedModel, tmp_path: Path) -> None:
    config = read_config(["--model", "tiny", "--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w"])
    scheduler = Scheduler(config, model)
    await scheduler.start()

    def broken(core: object, now: float) -> list[Any]:
        raise RuntimeError("a fault in the core")

    scheduler.loop.post(broken)
    await asyncio.wait_for(scheduler.failed.wait(), timeout=PATIENCE)
    await scheduler.stop(grace=0)


async def test_preemptions_are_reported_also_for_an_answer_that_a_stop_string_ended(
    model: ServedModel, tmp_path: Path
) -> None:
    flags = ["--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w", "--preempt", "drop"]
    scheduler = Scheduler(read_config(["--model", "tiny", *flags]), model)
    await scheduler.start()
    ids = answer([9] * 34, 35)
    before, whole = (model.vocabulary.decode(some, skip_special_tokens=False) for some in (ids[:29], ids[:35]))
    stop = whole[len(before) :]
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        first = stub.Generate(pb.GenerateRequest(**request([8] * 34, 35)))
        await until(lambda: len(scheduler.front.live) == 1)
        second = stub.Generate(pb.GenerateRequest(**request([9] * 34, 35, stop=[stop])))
        await until(lambda: len(scheduler.front.live) == 2)
        worker = PaperProcess(scheduler.link.address, PaperWorker(page_size=16, pages=7))
        _, stopped = await asyncio.gather(first, second)
    assert stopped.completions[0].finish.reason == pb.FINISH_REASON_STOP
    assert stopped.timings.preemptions == 1
    await scheduler.stop(grace=0)
    worker.stop()


async def test_models_are_listed(running: Running) -> None:
    models = (await running.stub.ListModels(pb.ListModelsRequest())).models
    assert [(m.name, m.max_context, m.vocab_size, list(m.end_token_ids)) for m in models] == [("tiny", 4096, 900, [2])]


async def test_health_follows_the_workers(running: Running) -> None:
    health: Any = health_pb2_grpc.HealthStub(running.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
    running.worker.stop()
    async for state in health.Watch(health_pb2.HealthCheckRequest(service=NAME)):
        if state.status == health_pb2.HealthCheckResponse.NOT_SERVING:
            return


async def test_a_port_in_use_is_a_start_error(model: ServedModel, tmp_path: Path) -> None:
    first = read_config(["--model", "tiny", "--listen", "127.0.0.1:0", "--workers", f"ipc://{tmp_path}/a"])
    holder = Scheduler(first, model)
    await holder.start()
    second = read_config(["--model", "tiny", "--listen", holder.address, "--workers", f"ipc://{tmp_path}/b"])
    with pytest.raises(StartError, match="is the port in use"):
        Scheduler(second, model)
    await holder.stop(grace=0)


async def test_with_keys_strangers_of_every_kind_are_kept_out(model: ServedModel, tmp_path: Path) -> None:
    keys = tmp_path / "k"
    make_keys([str(keys)])
    own = keys / "scheduler"
    flags = {
        "--model": "tiny",
        "--listen": "127.0.0.1:0",
        "--workers": f"ipc://{tmp_path}/w",
        "--tls-cert": own / "tls.crt",
        "--tls-key": own / "tls.key",
        "--token-file": own / "token",
        "--admin-token-file": own / "admin-token",
        "--curve-key": own / "scheduler.key_secret",
        "--curve-allow": own / "allow",
    }
    config = read_config([str(word) for pair in flags.items() for word in pair])
    scheduler = Scheduler(config, model)
    await scheduler.start()
    stranger = PaperProcess(scheduler.link.address, PaperWorker(), name="stranger")
    trust = grpc.ssl_channel_credentials((keys / "client" / "ca.crt").read_bytes())
    valid, steering = (
        (("authorization", f"Bearer {(keys / role / 'token').read_text()}"),) for role in ("client", "admin")
    )
    async with grpc.aio.secure_channel(scheduler.address, trust) as channel:
        stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        admin: Any = admin_pb2_grpc.AdminServiceStub(channel)
        for metadata in (
            (),
            (("authorization", ""),),
            (("authorization", "Bearer "),),
            (("authorization", "Bearer wrong"),),
        ):
            for call in (stub.ListModels(pb.ListModelsRequest(), metadata=metadata),
                         admin.GetStatus(admin_pb2.GetStatusRequest(), metadata=metadata),
                         stub.Generate(pb.GenerateRequest(), metadata=metadata)):  # fmt: skip
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in stub.GenerateStream(pb.GenerateStreamRequest(), metadata=metadata):
                    pass
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert (await stub.ListModels(pb.ListModelsRequest(), metadata=valid)).models[0].name == "tiny"
        status = await admin.GetStatus(admin_pb2.GetStatusRequest(), metadata=steering)
        assert not status.workers, "a worker without a key stays outside"
        health: Any = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
    stranger.stop()
    await scheduler.stop(grace=0)


async def test_a_recorded_service_can_be_replayed_when_it_has_stopped(model: ServedModel, tmp_path: Path) -> None:
    log = tmp_path / "log"
    places = ["--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w"]
    scheduler = Scheduler(read_config(["--model", "tiny", *places, "--record", str(log)]), model)
    await scheduler.start()
    worker = PaperProcess(scheduler.link.address, PaperWorker(page_size=4, pages=16))
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        async for state in health.Watch(health_pb2.HealthCheckRequest(service=NAME)):
            if state.status == health_pb2.HealthCheckResponse.SERVING:
                break
        stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        calls = [stub.Generate(pb.GenerateRequest(**request([5, 6, 7, number], 20))) for number in range(6)]
        answers = await asyncio.gather(*calls)
    await until(lambda: sum(isinstance(entry, Submit) for entry in EventLog(log)) == 6)  # while the service runs on
    await scheduler.stop(grace=0)
    worker.stop()
    assert [list(a.completions[0].token_ids) for a in answers] == [answer([5, 6, 7, n], 20) for n in range(6)]
    outcome = replay(EventLog(log))
    assert outcome.difference is None
    assert outcome.is_complete
    assert outcome.plans == len(worker.plans)


async def test_a_log_that_cannot_be_made_stops_the_start(model: ServedModel, tmp_path: Path) -> None:
    flags = ["--model", "tiny", "--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w", "--record"]
    (tmp_path / "there").touch()
    for name, reason in (("no/log", "No such file or directory"), ("there", "File exists")):
        with pytest.raises(StartError, match=f"cannot record to .*: {reason}"):
            Scheduler(read_config([*flags, str(tmp_path / name)]), model)


async def test_a_start_that_fails_leaves_no_log(running: Running, model: ServedModel, tmp_path: Path) -> None:
    flags = ["--model", "tiny", "--listen", running.scheduler.address, "--workers", f"ipc://{tmp_path}/other"]
    with pytest.raises(StartError):
        Scheduler(read_config([*flags, "--record", str(tmp_path / "log")]), model)
    assert not (tmp_path / "log").exists()
