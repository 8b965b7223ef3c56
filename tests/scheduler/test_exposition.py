"""The page of metrics: checked by Prometheus's own tool where it is, and against what is known to have happened."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from octavo.v1 import admin_pb2 as pb
from octavo.v1 import inference_pb2
from octavo_client.errors import InvalidRequest
from octavo_client.params import SamplingParams
from octavo_scheduler.exposition import exposition
from octavo_scheduler.model import ServedModel
from prometheus_client.parser import text_string_to_metric_families

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker
from tests.patience import until

LABELS = {"version", "model", "priority", "outcome", "result", "kind", "direction", "worker", "state", "tier", "le"}
ALIAS_LABELS = {"model_name", "block_size", "num_gpu_blocks", "finished_reason", "le"}
EXPECTED_ALIASES = (
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "cache_config_info",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "num_preemptions_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "request_success_total",
    "time_to_first_token_seconds_bucket",
    "inter_token_latency_seconds_bucket",
    "request_time_per_output_token_seconds_bucket",
    "e2e_request_latency_seconds_bucket",
    "request_queue_time_seconds_bucket",
    "request_prefill_time_seconds_bucket",
    "request_decode_time_seconds_bucket",
    "iteration_tokens_total_bucket",
    "request_prompt_tokens_bucket",
    "request_generation_tokens_bucket",
)
"""What dashboards, autoscalers and routers made for another server look for."""

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    worker = PaperWorker(page_size=4, pages=8, host_pages=8, max_slots=2)
    async with paper_service(model, tmp_path, worker) as running:
        yield running


def samples(page: str) -> Samples:
    found = [each for family in text_string_to_metric_families(page) for each in family.samples]
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for each in found}


async def page_of(service: PaperService) -> str:
    return exposition(await service.client.status()).decode()


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


async def test_the_page_says_what_has_happened(service: PaperService) -> None:
    service.is_open.set()
    await asyncio.gather(*(service.ask(f"secret-{n}", [n + 1] * 9, 16, tenant=f"tenant-{n}") for n in range(4)))
    with pytest.raises(InvalidRequest):
        await service.client.generate("x", SamplingParams(max_tokens=100_000))
    status = await service.client.status()
    found = samples(exposition(status).decode())
    assert value(found, "octavo_requests_total", outcome="length") == 4
    assert value(found, "octavo_requests_total", outcome="invalid") == 1
    assert value(found, "octavo_generation_tokens_total") == 64
    assert value(found, "octavo_request_generation_tokens_sum") == 64
    assert value(found, "octavo_inter_token_latency_seconds_count") == 60, "all tokens but four first ones"
    assert value(found, "octavo_time_to_first_token_seconds_bucket", le="+Inf") == 4
    assert value(found, "octavo_prefix_cache_tokens_total", result="queried") == 36
    assert value(found, "octavo_workers_joined_total") == 1
    preempted = {kind: value(found, "octavo_preemptions_total", kind=kind) for kind in ("swap", "drop")}
    assert preempted == {"swap": status.counters.swaps, "drop": status.counters.drops}
    assert sum(preempted.values()) > 0, "8 pages do not hold two answers"
    moved = value(found, "octavo_swapped_bytes_total", direction="out")
    assert moved == status.counters.swapped_out_bytes
    assert bool(moved) == bool(preempted["swap"])
    steps = status.workers[0].step
    for name in ("plan", "answer", "execute"):
        assert value(found, f"octavo_step_{name}_seconds_count", worker="w0") == steps
    pages = [
        value for (name, labels), value in found.items() if name == "octavo_pages" and ("tier", "device") in labels
    ]
    assert sum(pages) == 8


async def test_waiting_requests_are_counted_in_three_classes(service: PaperService) -> None:
    await service.client.drain_worker("w0")
    waiting = []
    for priority in (-7, 0, 1, 1 << 30):
        options = SamplingParams(max_tokens=1).as_proto()
        options.scheduling.priority = priority
        request = inference_pb2.GenerateRequest(prompt=inference_pb2.Prompt(text="x"), options=options)
        waiting.append(asyncio.ensure_future(service.stub.Generate(request)))
    await until(lambda: len(service.scheduler.loop.core.waiting) == 4)
    status = await service.client.status()
    assert [(each.priority, each.waiting) for each in status.queue] == [(1 << 30, 1), (1, 1), (0, 1), (-7, 1)]
    found = samples(exposition(status).decode())
    depths = [value(found, "octavo_queue_depth", priority=name) for name in ("low", "normal", "high")]
    assert depths == [1, 1, 2]
    service.is_open.set()
    await service.client.resume_worker("w0")
    await asyncio.gather(*waiting)


async def test_no_label_grows_with_what_clients_say(service: PaperService) -> None:
    service.is_open.set()
    await service.ask("named-by-a-client", [1, 2, 3], tenant="some-tenant")
    page = await page_of(service)
    assert "named-by-a-client" not in page
    assert "some-tenant" not in page
    for name, labels in samples(page):
        allowed = ALIAS_LABELS if name.startswith("vllm:") else LABELS
        assert {label for label, _ in labels} <= allowed, name


async def test_the_aliases_that_others_rely_on_are_there(service: PaperService) -> None:
    found = {name for name, _ in samples(await page_of(service))}
    assert {f"vllm:{name}" for name in EXPECTED_ALIASES} <= found


def test_a_server_without_workers_has_a_page_too() -> None:
    found = samples(exposition(pb.GetStatusResponse(model="m")).decode())
    assert value(found, "vllm:kv_cache_usage_perc", model_name="m") == 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
async def test_promtool_finds_nothing_wrong_but_with_the_names_of_another_server(service: PaperService) -> None:
    service.is_open.set()
    await service.ask("a", [1, 2, 3])
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=await page_of(service), capture_output=True, text=True, check=False
    )
    said = (done.stdout + done.stderr).splitlines()
    assert said, "it complains of the colons, which the names must have"
    assert [line for line in said if not line.startswith("vllm:")] == []
