"""Executes plans: the worker without its socket."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from octavo_kernels.ops import Geometry

from octavo_worker.architecture import Architecture
from octavo_worker.batch import Hello, Plan, Rows, StepPlan, StepResult, read_plan, write_hello, write_result
from octavo_worker.cache import PageCache, num_device_pages, num_host_pages
from octavo_worker.change import advance, apply
from octavo_worker.check import foresee
from octavo_worker.config import WorkerConfig
from octavo_worker.engine import Engine
from octavo_worker.errors import ConfigError, PlanRefused, Reason
from octavo_worker.limits import Limits
from octavo_worker.manifest import is_engine
from octavo_worker.model import Decoder
from octavo_worker.precision import Precision, choose, pick_kernels
from octavo_worker.slots import Array, Counts, Slots
from octavo_worker.source import open_source
from octavo_worker.step import fill, new_step, shared
from octavo_worker.weights import Weights, load


@dataclass(slots=True)
class Counters:
    """Since the start; the cache counts moved pages itself."""

    steps: int = 0
    tokens_computed: int = 0
    tokens_sampled: int = 0
    plans_refused: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast a worker was when it warmed up; 0 means not measured."""

    copy_bytes_per_second: float = 0.0
    prefill_tokens_per_second: float = 0.0


class Runner:
    """Slots, pages and the model. One plan at a time; the step protocol says what a plan means."""

    def __init__(
        self, config: WorkerConfig, weights: Weights, cache: PageCache, precision: Precision, max_context: int
    ) -> None:
        self.config, self.cache, self.precision = config, cache, precision
        self.counters = Counters()
        self.rates = Rates()
        self.last_step = 0
        self.slots = Slots(max_slots=config.max_slots, max_context=max_context, page_size=config.page_size)
        self.limits = Limits(
            device_pages=cache.device_pages,
            host_pages=cache.host_pages,
            page_size=config.page_size,
            max_step_tokens=config.max_step_tokens,
            vocab_size=weights.architecture.vocab,
        )
        self.step = new_step(self.slots, cache.geometry, config.max_step_tokens)
        self.sampled = np.zeros(config.max_slots, np.int32)
        self.decoder = Decoder(
            weights,
            cache.ops,
            step=shared(self.step, cache.ops.share),
            sampling=self.slots.sampling(cache.ops.share),
            pool=cache.pool,
            sampled=cache.ops.share(self.sampled),
            dtype=precision.dtype,
            max_context=max_context,
        )

    def hello(self) -> Hello:
        """What this worker is and what it can hold."""
        return write_hello(
            worker_id=self.config.worker_id,
            digest=self.precision.digest(self.decoder.weights.digest),
            geometry=self.cache.geometry,
            limits=self.limits,
            max_slots=self.slots.max_slots,
            max_context=self.slots.max_context,
            ops=self.decoder.ops,
            copy_bytes_per_second=self.rates.copy_bytes_per_second,
            prefill_tokens_per_second=self.rates.prefill_tokens_per_second,
        )

    def reset(self) -> None:
        """A new epoch: no slots, step 0. Pages keep their bytes, which nothing will read."""
        self.slots.clear()
        self.last_step = 0

    def execute(self, message: StepPlan) -> StepResult:
        """Apply a plan and compute its rows.

        Raises PlanRefused: INVALID and OUT_OF_SEQUENCE have changed nothing, FAILED has emptied all slots.
        """
        started = time.perf_counter()
        try:
            plan = read_plan(message)
            counts = foresee(plan, self.slots, self.limits, self.last_step)
        except PlanRefused:
            self.counters.plans_refused += 1
            raise
        try:
            return self.run(plan, counts, started)
        except Exception as error:  # whatever a step dies of, the worker lives on and says so
            self.slots.clear()
            self.counters.plans_refused += 1
            raise PlanRefused(Reason.FAILED, f"step {plan.step} failed: {type(error).__name__}: {error}") from error

    def run(self, plan: Plan, counts: Counts, started: float) -> StepResult:
        """The order here is the order in which a plan's effects are observed."""
        swapped, swap_started = self.cache.swapped_bytes, time.perf_counter()
        self.cache.swap_out(plan.swap_out)
        self.cache.swap_in(plan.swap_in)
        swap_seconds = time.perf_counter() - swap_started
        swapped = self.cache.swapped_bytes - swapped
        self.cache.copy(plan.copy)
        self.cache.zero(plan.zero)
        apply(plan, counts, self.slots)
        tokens = self.run_rows(plan.rows) if len(plan.rows.slot) else np.zeros(0, np.int32)
        self.last_step = plan.step
        self.counters.steps += 1
        return write_result(
            step=plan.step,
            tokens=tokens,
            execute_seconds=time.perf_counter() - started,
            swapped_bytes=swapped,
            swap_seconds=swap_seconds if swapped else 0.0,
        )

    def run_rows(self, rows: Rows) -> Array:
        """Compute the rows, sample, remember the samples; int32 tokens in plan order."""
        fill(self.step, rows, self.slots)
        self.decoder.replay()
        tokens = self.sampled[: self.step.num_samples]
        advance(rows, self.slots)
        self.counters.tokens_computed += self.step.num_tokens
        self.counters.tokens_sampled += len(tokens)
        return tokens


def build_runner(config: WorkerConfig, progress: Callable[[int, int], None] = lambda done, total: None) -> Runner:
    """Load the model and make the pool. `progress(layers read, layers in all)`. Raises WorkerError."""
    engine = Engine(config.model) if is_engine(config.model) else None
    config = engine.settle(config) if engine else config
    ops = pick_kernels(config)
    precision = choose(config, ops)
    weights = engine.load(ops) if engine else load(open_source(config.model), ops, precision.weights, progress)
    a = weights.architecture
    geometry = Geometry(config.page_size, a.layers, a.kv_heads, a.head_dim, precision.cache)
    pages, host_pages = num_device_pages(config, geometry), num_host_pages(config, geometry)
    cache = PageCache(geometry, ops, pages=pages, host_pages=host_pages)
    return Runner(config, weights, cache, precision, context_of(config, a))


def context_of(config: WorkerConfig, architecture: Architecture) -> int:
    """Tokens of the longest sequence, at most as many as the model's positions reach. Raises ConfigError."""
    most = architecture.max_context
    if (config.max_context or 0) > most:
        raise ConfigError(f"--max-context {config.max_context} is more than the model's positions reach: {most} tokens")
    return config.max_context or most
