"""The status as Prometheus metrics. A pure function: one message in, one page of text out.

Names of our own begin with `octavo_`. Those that dashboards, autoscalers and routers made for another server look for are
there too, under its names (`vllm:`). Labels are worker ids and closed lists of words: never a tenant, a request, or a
number that clients choose.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from octavo.v1 import admin_pb2 as pb
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE", "exposition"]

Values = Mapping[Any, float]
"""By the words for the labels, a tuple of them for each series."""

PAGE_STATES = ("free", "cached", "held", "fenced", "quarantined")
WORKER_STATES = ("joining", "ready", "draining")
PRIORITIES = ("low", "normal", "high")

# field of Service, name without prefix, help, the other server's name
HISTOGRAMS = (
    ("first_token_seconds", "time_to_first_token_seconds", "From a request's arrival to its first token."),
    ("inter_token_seconds", "inter_token_latency_seconds", "From one token of an answer to the next."),
    ("token_seconds", "request_time_per_output_token_seconds", "Decode time of a request per token after the first."),
    ("total_seconds", "e2e_request_latency_seconds", "From a request's arrival to the end of its answer."),
    ("queue_seconds", "request_queue_time_seconds", "From a request's arrival to its first step."),
    ("prefill_seconds", "request_prefill_time_seconds", "From a request's first step to its first token."),
    ("decode_seconds", "request_decode_time_seconds", "From a request's first token to the end of its answer."),
    ("prompt_tokens", "request_prompt_tokens", "Tokens of the prompts of requests."),
    ("answer_tokens", "request_generation_tokens", "Tokens of the answers of requests, all branches together."),
)
WORKER_GAUGES = (
    ("page_size", "octavo_page_size_tokens", "Token slots of a page."),
    ("plans_in_flight", "octavo_plans_in_flight", "Plans that a worker has not answered."),
    ("silent_seconds", "octavo_worker_silent_seconds", "Time since a worker was heard last."),
    (
        "step_lag_seconds",
        "octavo_worker_step_lag_seconds",
        "Age of the oldest plan that a worker has not answered.",
    ),
    ("slot_utilisation", "octavo_slot_utilisation_ratio", "Token slots of held pages that hold a token."),
)
STEP_HISTOGRAMS = (
    ("plan_seconds", "octavo_step_plan_seconds", "Making and encoding the plan of a step."),
    ("answer_seconds", "octavo_step_answer_seconds", "From a plan on its way, or the result before it, to its result."),
    ("execute_seconds", "octavo_step_execute_seconds", "Executing a step, as the worker says."),
)
COUNTERS = (
    ("prompt_tokens", "octavo_prompt_tokens", "Prompt tokens computed."),
    ("generated_tokens", "octavo_generation_tokens", "Tokens generated."),
    ("swap_seconds", "octavo_swap_seconds", "Time that workers spent moving pages between tiers, as they say."),
    ("workers_joined", "octavo_workers_joined", "Workers that joined."),
    ("workers_lost", "octavo_workers_lost", "Workers that left or were given up."),
    ("frontends_lost", "octavo_frontends_lost", "Front processes that ended unasked, and were started again."),
    ("audit_violations", "octavo_audit_violations", "Laws of the page ledger that were found broken, and mended."),
)
FINISHED = {"stop": "stop", "length": "length", "aborted": "abort", "cancelled": "abort"}
"""The other server's words for outcomes."""


def exposition(status: pb.GetStatusResponse) -> bytes:
    """The page that Prometheus scrapes, in its text format 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families([*_own(status), *_aliases(status)]))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _own(status: pb.GetStatusResponse) -> Iterator[Metric]:
    service, counters = status.service, status.counters
    about = {(version("octavo"), status.model): 1.0}
    yield _gauge("octavo_build_info", "Version of the scheduler, and the model served.", about, "version", "model")
    yield _gauge("octavo_uptime_seconds", "Time since the scheduler started.", {(): status.uptime_seconds})
    yield _gauge("octavo_live_requests", "Requests alive.", {(): status.live_requests})
    yield _gauge("octavo_queue_depth", "Sequences waiting, by priority.", _queue(status), "priority")
    outcomes = {(each.outcome,): float(each.count) for each in service.outcomes}
    yield _counter("octavo_requests", "Requests that have ended, by how.", outcomes, "outcome")
    yield _counter("octavo_streams_cut_off", "Streams whose clients did not read them.", {(): service.streams_cut_off})
    looked_up = {("queried",): service.prefix_queries, ("found",): service.prefix_hits}
    yield _counter("octavo_prefix_cache_tokens", "Prompt tokens looked up in the prefix cache.", looked_up, "result")
    kinds = {("swap",): counters.swaps, ("drop",): counters.drops}
    yield _counter("octavo_preemptions", "Sequences that lost their pages to others.", kinds, "kind")
    moved = {("out",): counters.swapped_out_bytes, ("in",): counters.swapped_in_bytes}
    yield _counter("octavo_swapped_bytes", "Bytes of pages that plans moved between tiers.", moved, "direction")
    discarded = {("stale",): counters.stale_messages, ("unreadable",): counters.bad_messages}
    yield _counter("octavo_discarded_messages", "Messages of workers that led to nothing.", discarded, "kind")
    for field, name, text in COUNTERS:
        yield _counter(name, text, {(): getattr(counters, field)})
    for field, name, text in HISTOGRAMS:
        yield _histogram(f"octavo_{name}", text, {(): getattr(service, field)})
    yield _histogram("octavo_step_tokens", "Tokens computed in a step.", {(): service.step_tokens})
    yield from _workers(status.workers)


def _workers(workers: Iterable[pb.WorkerStatus]) -> Iterator[Metric]:
    states = {
        (each.worker_id, state): float(pb.WorkerState.Value(f"WORKER_STATE_{state.upper()}") == each.state)
        for each in workers
        for state in WORKER_STATES
    }
    yield _gauge("octavo_worker_state", "1 for the state that a worker is in.", states, "worker", "state")
    pages = {
        (each.worker_id, tier, state): float(getattr(counts, state))
        for each in workers
        for tier, counts in (("device", each.device), ("host", each.host))
        for state in PAGE_STATES
    }
    yield _gauge("octavo_pages", "Pages of a worker, by tier and state.", pages, "worker", "tier", "state")
    places = {
        (each.worker_id, place): float(count)
        for each in workers
        for place, count in (("device", each.running), ("host", each.swapped))
    }
    yield _gauge("octavo_sequences", "Sequences running, and those swapped out to the host.", places, "worker", "tier")
    for field, name, text in WORKER_GAUGES:
        yield _gauge(name, text, {(each.worker_id,): getattr(each, field) for each in workers}, "worker")
    memory = {
        (each.worker_id, kind): float(getattr(each, f"device_memory_{kind}"))
        for each in workers
        if each.HasField("device_memory_total")
        for kind in ("used", "total")
    }
    yield _gauge(
        "octavo_device_memory_bytes", "Memory of a worker's device, by all processes.", memory, "worker", "kind"
    )
    for field, name, text in STEP_HISTOGRAMS:
        yield _histogram(name, text, {(each.worker_id,): getattr(each, field) for each in workers}, "worker")


def _aliases(status: pb.GetStatusResponse) -> Iterator[Metric]:
    counters, service, workers = status.counters, status.service, status.workers
    model = (status.model,)
    total = sum(each.device.total for each in workers)
    usage = sum(each.device.held for each in workers) / total if total else 0.0
    running = sum(each.running for each in workers)
    for name, text, value in (
        ("vllm:num_requests_running", "Sequences running.", running),
        ("vllm:num_requests_waiting", "Sequences waiting or swapped out.", status.waiting),
        ("vllm:kv_cache_usage_perc", "Share of device pages held, 1 for all.", usage),
    ):
        yield _gauge(name, text, {model: value}, "model_name")
    if workers:
        sizes = {(str(workers[0].page_size), str(total), *model): 1.0}
        names = ("block_size", "num_gpu_blocks", "model_name")
        yield _gauge("vllm:cache_config_info", "Size and number of pages.", sizes, *names)
    for name, text, value in (
        ("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", service.prefix_queries),
        ("vllm:prefix_cache_hits", "Of these, found.", service.prefix_hits),
        ("vllm:num_preemptions", "Sequences that lost their pages to others.", counters.swaps + counters.drops),
        ("vllm:prompt_tokens", "Prompt tokens computed.", counters.prompt_tokens),
        ("vllm:generation_tokens", "Tokens generated.", counters.generated_tokens),
    ):
        yield _counter(name, text, {model: value}, "model_name")
    finished: Counter[tuple[str, str]] = Counter()
    for each in service.outcomes:
        if each.outcome in FINISHED:
            finished[FINISHED[each.outcome], *model] += each.count
    yield _counter("vllm:request_success", "Requests that ended, by how.", finished, "finished_reason", "model_name")
    for field, name, text in (*HISTOGRAMS, ("step_tokens", "iteration_tokens_total", "Tokens computed in a step.")):
        yield _histogram(f"vllm:{name}", text, {model: getattr(service, field)}, "model_name")


def _queue(status: pb.GetStatusResponse) -> Values:
    """Clients choose priorities freely, so there are three of them here."""
    waiting = dict.fromkeys(((name,) for name in PRIORITIES), 0.0)
    for each in status.queue:
        waiting[(PRIORITIES[(each.priority > 0) - (each.priority < 0) + 1],)] += each.waiting
    return waiting


def _gauge(name: str, text: str, values: Values, *labels: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for words, value in values.items():
        family.add_metric(words, value)
    return family


def _counter(name: str, text: str, values: Values, *labels: str) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for words, value in values.items():
        family.add_metric(words, value)
    return family


def _histogram(name: str, text: str, values: Mapping[Any, pb.Histogram], *labels: str) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for words, histogram in values.items():
        cumulative, buckets = 0, []
        for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts or (0,), strict=True):
            cumulative += count
            buckets.append((str(bound), cumulative))
        family.add_metric(words, buckets, histogram.sum)
    return family
