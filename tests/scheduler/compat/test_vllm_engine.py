"""vllm.grpc.engine.VllmEngine as a gateway uses it: a scheduler in this process, a paper worker behind it."""

import asyncio
import hashlib
import io
import json
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from octavo.foreign import vllm_engine_pb2 as pb
from octavo.foreign import vllm_engine_pb2_grpc
from octavo_scheduler.compat import vllm_engine
from octavo_scheduler.compat.vllm_messages import ANY_OBJECT, options_of
from octavo_scheduler.model import ServedModel
from tokenizers import Tokenizer

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker, answer
from tests.patience import until

Status = grpc.StatusCode


@dataclass
class Engine:
    """`stub` is the gateway's."""

    service: PaperService
    stub: Any

    async def generate(self, ids: list[int], *, stream: bool = True, **params: Any) -> list[pb.GenerateResponse]:
        return [response async for response in self.stub.Generate(request(ids, stream=stream, **params))]

    async def until_free(self) -> None:
        core = self.service.scheduler.loop.core
        await until(lambda: not core.requests and not core.workers["w0"].device.num_held)


@pytest.fixture
async def engine(model: ServedModel, tmp_path: Path) -> AsyncIterator[Engine]:
    async with paper_service(model, tmp_path, PaperWorker(page_size=4, pages=64, host_pages=16)) as service:
        service.is_open.set()
        yield Engine(service, vllm_engine_pb2_grpc.VllmEngineStub(service.channel))


def request(ids: list[int], *, name: str = "mine", stream: bool = True, **params: Any) -> pb.GenerateRequest:
    given = {"temperature": 0, "max_tokens": 6, "ignore_eos": True, "top_p": 1, "repetition_penalty": 1, "seed": 0}
    return pb.GenerateRequest(
        request_id=name,
        tokenized=pb.TokenizedInput(original_text="not read", input_ids=ids),
        sampling_params=pb.SamplingParams(**{**given, **params}),
        stream=stream,
    )


async def test_a_stream_is_chunks_of_new_ids_with_counts_so_far_and_one_complete_with_all_of_them(
    engine: Engine,
) -> None:
    *chunks, last = await engine.generate([5, 6, 7])
    ids = [token for response in chunks for token in response.chunk.token_ids]
    assert ids == answer([5, 6, 7], 6)
    counts = [response.chunk.completion_tokens for response in chunks]
    lengths = [len(response.chunk.token_ids) for response in chunks]
    assert counts == [sum(lengths[: place + 1]) for place in range(len(lengths))]
    assert list(last.complete.output_ids) == ids
    assert (last.complete.finish_reason, last.complete.completion_tokens, last.complete.prompt_tokens) == (
        "length",
        6,
        3,
    )


async def test_without_stream_there_is_one_complete_and_nothing_else(engine: Engine) -> None:
    (only,) = await engine.generate([5, 6, 7], stream=False)
    assert list(only.complete.output_ids) == answer([5, 6, 7], 6)


async def test_of_several_answers_each_has_its_own_chunks_counts_and_complete(engine: Engine) -> None:
    responses = await engine.generate([9, 8], n=3, seed=-1, temperature=1)
    completes = [response.complete for response in responses if response.HasField("complete")]
    assert [complete.index for complete in completes] == [0, 1, 2]
    for complete in completes:
        chunks = [r.chunk for r in responses if r.HasField("chunk") and r.chunk.index == complete.index]
        assert [token for chunk in chunks for token in chunk.token_ids] == list(complete.output_ids)
        assert chunks[-1].completion_tokens == complete.completion_tokens == 6
    assert responses[-3:] == [pb.GenerateResponse(complete=complete) for complete in completes]


async def test_what_stopped_an_answer_is_named(engine: Engine, model: ServedModel) -> None:
    ids = answer([5, 6, 7], 6)
    (by_id,) = await engine.generate([5, 6, 7], stream=False, stop_token_ids=[ids[2]])
    assert (by_id.complete.finish_reason, by_id.complete.matched_token_id) == ("stop", ids[2])
    assert list(by_id.complete.output_ids) == ids[: ids.index(ids[2]) + 1]
    stop = model.vocabulary.decode(ids)[1:3]
    (by_text,) = await engine.generate([5, 6, 7], stream=False, stop=[stop])
    assert (by_text.complete.finish_reason, by_text.complete.matched_stop_str) == ("stop", stop)


async def test_a_prompt_may_be_text(engine: Engine, model: ServedModel) -> None:
    asked = pb.GenerateRequest(text="the and", sampling_params=pb.SamplingParams(max_tokens=4, ignore_eos=True, seed=0))
    (only,) = [response async for response in engine.stub.Generate(asked)]
    assert list(only.complete.output_ids) == answer(model.vocabulary.encode("the and"), 4)


async def test_a_prompt_that_was_computed_before_counts_as_cached(engine: Engine) -> None:
    await engine.generate(list(range(10, 20)))
    (only,) = await engine.generate(list(range(10, 20)), stream=False)
    assert (only.complete.prompt_tokens, only.complete.cached_tokens) == (10, 8)


async def test_abort_ends_the_stream_with_that_reason_and_frees_its_pages(engine: Engine) -> None:
    others = [engine.stub.Generate(request([5, 6, 7], name=name, max_tokens=200)) for name in ("other", "")]
    call = engine.stub.Generate(request([5, 6, 7], max_tokens=200))
    assert (await call.read()).chunk.token_ids
    engine.service.is_open.clear()
    await engine.stub.Abort(pb.AbortRequest(request_ids=["unknown", "", "mine"]))
    engine.service.is_open.set()
    while (response := await call.read()).HasField("chunk"):
        pass
    assert response.complete.finish_reason == "abort"
    assert 0 < response.complete.completion_tokens < 200
    for other in others:
        assert [r.complete.finish_reason async for r in other if r.HasField("complete")] == ["length"]
    await engine.until_free()


async def test_a_request_that_waits_for_a_worker_is_aborted_too(engine: Engine) -> None:
    await engine.service.client.drain_worker("w0")
    call = engine.stub.Generate(request([5, 6, 7]))
    core = engine.service.scheduler.loop.core
    await until(lambda: len(core.waiting) == 1)
    await engine.stub.Abort(pb.AbortRequest(request_ids=["mine"]))
    (only,) = [response async for response in call]
    assert (only.complete.finish_reason, only.complete.completion_tokens) == ("abort", 0)


async def test_a_request_that_is_still_being_checked_is_aborted_before_it_begins(
    engine: Engine, model: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    front, is_aborted = engine.service.scheduler.front, asyncio.Event()
    parsed = front.parsed

    async def slowly(*args: Any, **options: Any) -> Any:
        await is_aborted.wait()
        return await parsed(*args, **options)

    monkeypatch.setattr(front, "parsed", slowly)
    call = engine.stub.Generate(request([5, 6, 7]))
    calling = asyncio.create_task(call.read())
    await engine.stub.HealthCheck(pb.HealthCheckRequest())  # answered after Generate was taken up
    await engine.stub.Abort(pb.AbortRequest(request_ids=["mine"]))
    is_aborted.set()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await calling
    assert caught.value.code() is Status.CANCELLED
    assert engine.service.scheduler.loop.core.counters.accepted == 0


async def test_a_client_that_leaves_frees_its_pages(engine: Engine) -> None:
    call = engine.stub.Generate(request([5, 6, 7], max_tokens=200))
    await call.read()
    call.cancel()
    await engine.until_free()
    assert engine.service.scheduler.loop.core.counters.cancelled == 1


REFUSED: dict[str, dict[str, Any]] = {
    "top_p": {"top_p": 1.5},
    "truncate_prompt_tokens": {"truncate_prompt_tokens": 3},
    "structural_tag": {"structural_tag": "{}"},
    "logprobs": {"logprobs": -1},
    "logit_bias": {"logit_bias": {-1: 2.0}},
    "max_tokens": {"max_tokens": 1 << 30},
    "temperature": {"temperature": -1},
}


@pytest.mark.parametrize("name", sorted(REFUSED))
async def test_what_cannot_be_served_is_refused_by_name(engine: Engine, name: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await engine.generate([5], **REFUSED[name])
    assert caught.value.code() is Status.INVALID_ARGUMENT
    assert name in (caught.value.details() or "")


MEDIA = (
    pb.GenerateRequest(mm_inputs=pb.Media()),
    pb.GenerateRequest(media_refs=pb.Media()),
    pb.GenerateRequest(extra_mm_inputs=[pb.Media()]),
    pb.GenerateRequest(kv_transfer_params=pb.Media()),
    pb.GenerateRequest(kv_transfer_params_json="{}"),
)


@pytest.mark.parametrize("media", MEDIA, ids=lambda media: media.ListFields()[0][0].name)
async def test_images_and_pages_of_other_engines_are_refused_not_skipped(
    engine: Engine, media: pb.GenerateRequest
) -> None:
    asked = request([5])
    asked.MergeFrom(media)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await engine.stub.Generate(asked).read()
    assert caught.value.code() is Status.INVALID_ARGUMENT


def test_numbers_that_are_zero_count_as_not_set_and_a_temperature_of_zero_does_not() -> None:
    unset = options_of(pb.SamplingParams())
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
    assert not any(unset.sampling.HasField(name) for name in (*names, "seed"))
    assert not unset.stopping.HasField("max_tokens")
    assert options_of(pb.SamplingParams(temperature=0)).sampling.HasField("temperature")


CONSTRAINTS: dict[str, dict[str, Any]] = {
    "json_schema": {"json_schema": "{}"},
    "regex": {"regex": "a+"},
    "grammar": {"grammar": 'start: "a"'},
    "choice": {"choice": pb.ChoiceConstraint(choices=["a", "b"])},
}


@pytest.mark.parametrize("kind", sorted(CONSTRAINTS))
def test_a_constraint_keeps_its_kind(kind: str) -> None:
    assert options_of(pb.SamplingParams(**CONSTRAINTS[kind])).constraint.WhichOneof("kind") == kind


def test_json_object_is_the_schema_of_any_object_and_false_is_no_constraint() -> None:
    assert options_of(pb.SamplingParams(json_object=True)).constraint.json_schema == ANY_OBJECT
    assert options_of(pb.SamplingParams(json_object=False)).constraint.WhichOneof("kind") is None


async def test_the_models_own_sampling_values_are_told(model: ServedModel, tmp_path: Path) -> None:
    own = replace(model, defaults={"temperature": 0.5, "top_p": 0.25})
    async with paper_service(own, tmp_path, PaperWorker(page_size=4, pages=64)) as service:
        stub: Any = vllm_engine_pb2_grpc.VllmEngineStub(service.channel)
        info = await stub.GetModelInfo(pb.GetModelInfoRequest())
    assert json.loads(info.default_sampling_params_json) == own.defaults


async def test_model_server_and_load_are_told(engine: Engine, model: ServedModel) -> None:
    info = await engine.stub.GetModelInfo(pb.GetModelInfoRequest())
    assert (info.served_model_name, info.vocab_size) == (model.name, model.vocab_size)
    assert list(info.eos_token_ids) == sorted(model.end_token_ids)
    server = await engine.stub.GetServerInfo(pb.GetServerInfoRequest())
    assert (server.server_type, server.block_size, server.is_paused) == ("vllm-grpc", 4, False)
    call = engine.stub.Generate(request([5, 6, 7], max_tokens=200))
    await call.read()
    engine.service.is_open.clear()
    (load,) = (await engine.stub.GetLoads(pb.GetLoadsRequest())).loads
    assert (load.num_running_reqs, load.num_total_reqs, load.max_total_num_tokens) == (1, 1, 256)
    assert 0 < load.num_used_tokens == load.token_usage * 256
    engine.service.is_open.set()
    call.cancel()


async def test_health_is_told_both_ways(engine: Engine) -> None:
    health: Any = health_pb2_grpc.HealthStub(engine.service.channel)
    ask = health_pb2.HealthCheckRequest(service="vllm.grpc.engine.VllmEngine")
    assert (await health.Check(ask)).status == health_pb2.HealthCheckResponse.SERVING
    assert (await engine.stub.HealthCheck(pb.HealthCheckRequest())).healthy
    await engine.service.client.drain_worker("w0")
    answered = await engine.stub.HealthCheck(pb.HealthCheckRequest())
    assert (answered.healthy, answered.message) == (False, "no worker is here")


async def test_the_tokenizer_comes_as_a_zip_whose_digest_is_in_the_last_part(
    engine: Engine, model: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_engine, "ARCHIVE_PART_BYTES", 1000)
    parts = [part async for part in engine.stub.GetTokenizer(pb.GetTokenizerRequest())]
    data = b"".join(part.data for part in parts)
    assert [bool(part.sha256) for part in parts] == [*[False] * (len(parts) - 1), True]
    assert parts[-1].sha256 == hashlib.sha256(data).hexdigest()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        tokenizer = Tokenizer.from_str(archive.read("tokenizer.json").decode())
        config = json.loads(archive.read("tokenizer_config.json"))
    assert tokenizer.encode("the and you").ids == model.vocabulary.encode("the and you")
    assert model.template is not None
    assert (config["chat_template"], config["eos_token"]) == (model.template.source, "<|im_end|>")


async def test_flush_forgets_what_is_cached(engine: Engine) -> None:
    await engine.generate(list(range(10, 20)))
    await engine.until_free()
    flushed = await engine.stub.FlushCache(pb.FlushCacheRequest())
    assert (flushed.success, flushed.message) == (True, "3 pages are free now")
