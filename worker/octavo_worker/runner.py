"""Executes plans: the worker without its socket."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from octavo_kernels.ops import MOST_LOGPROBS, Fetched, Geometry, Ops

from octavo_worker import masks
from octavo_worker.architecture import Architecture
from octavo_worker.batch import (
    Hello,
    Plan,
    Rows,
    StepPlan,
    StepResult,
    pairs,
    read_plan,
    refuse,
    takes_late_masks,
    write_hello,
    write_result,
)
from octavo_worker.cache import open_cache
from octavo_worker.change import advance, apply
from octavo_worker.check import foresee, late_masks
from octavo_worker.config import WorkerConfig
from octavo_worker.engine import Engine
from octavo_worker.errors import ConfigError, PlanRefused, Reason, is_memory
from octavo_worker.group.alone import ALONE, Group
from octavo_worker.manifest import is_engine
from octavo_worker.model import Activations, Decoder
from octavo_worker.precision import Precision, choose, pick_kernels, warn_of_range
from octavo_worker.slots import Counts, Slots
from octavo_worker.source import open_source
from octavo_worker.step import fill, head_rows_of, new_step, shared
from octavo_worker.vocabulary import num_tokens
from octavo_worker.weights import Weights, load

SCORE_WIDTH = 1 + MOST_LOGPROBS
LateMasks = Callable[[], bytes]
"""Waits for the masks of a plan that was sent without; empty where nobody waits for its samples any more."""


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


@dataclass(slots=True)
class Pending:
    """A plan whose rows are on their way."""

    step: int
    started: float  # seconds
    tokens: Fetched
    scores: tuple[Fetched, Fetched] | None
    num_best: int
    swapped_bytes: int

    def logprobs(self) -> bytes:
        """As a result has them, once the tokens are there."""
        if self.scores is None:
            return b""
        values, ids = (each.wait().reshape(-1, SCORE_WIDTH)[:, : 1 + self.num_best] for each in self.scores)
        return pairs(ids, values)


class Runner:
    """Slots, pages and the model; the step protocol says what a plan means.

    A plan is submitted, which checks it and gives its work to the kernels, and its result is taken later. With kernels that
    work beside the caller a second plan may be submitted meanwhile: nothing that it needs of the first is known here only.
    """

    open: tuple[Rows, LateMasks] | None = None
    """Rows of the step that runs, if its masks are to come."""

    def __init__(
        self,
        config: WorkerConfig,
        weights: Weights,
        ops: Ops,
        precision: Precision,
        geometry: Geometry,
        max_context: int,
        group: Group = ALONE,
    ) -> None:
        self.config, self.precision, self.ops = config, precision, ops
        self.counters, self.rates, self.last_step = Counters(), Rates(), 0
        self.finished = self.swap_seconds = 0.0  # when the last result was taken; what moves took, of results taken
        sizes = {"max_slots": config.max_slots, "max_context": max_context, "page_size": config.page_size}
        self.slots = Slots(**sizes, changed=ops.changed, copied=ops.copied)
        self.step = new_step(self.slots, geometry, config.max_step_tokens)
        self.masks = masks.new_masks(config.max_slots, weights.architecture.vocab)
        self.sampled = np.zeros(config.max_slots, np.int32)
        head_rows = head_rows_of(config.max_slots)
        self.scores = [np.zeros(head_rows * SCORE_WIDTH, dtype) for dtype in (np.float32, np.int32)]
        shares: dict[str, Any] = {
            "take_masks": self.take_masks,
            "step": shared(self.step, ops.share),
            "masks": masks.shared(self.masks, ops.share),
            "sampling": self.slots.sampling(ops.share),
            "sampled": ops.share(self.sampled),
            "scores": tuple(ops.share(each).reshape(head_rows, SCORE_WIDTH) for each in self.scores),
        }
        sizes = {"tokens": config.max_step_tokens, "rows": head_rows, "biased": config.max_slots}
        activations = Activations(weights.architecture, ops, **sizes, dtype=precision.dtype)
        self.cache = open_cache(config, geometry, ops, group.least)  # last: it takes what is left
        vocabulary = min(weights.architecture.vocab, num_tokens(config.model) or weights.architecture.vocab)
        self.limits = self.cache.limits(config.max_step_tokens, vocabulary)
        self.decoder = Decoder(
            weights, ops, activations, pool=self.cache.pool, max_context=max_context, vocabulary=vocabulary, **shares
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
            ops=self.ops,
            copy_bytes_per_second=self.rates.copy_bytes_per_second,
            prefill_tokens_per_second=self.rates.prefill_tokens_per_second,
        )

    def reset(self) -> None:
        """A new epoch: no slots, step 0. Pages keep their bytes, which nothing will read."""
        self.slots.clear()
        self.last_step = 0

    def execute(self, message: StepPlan, masks: LateMasks | None = None) -> StepResult:
        """Submit a plan and wait for its result. Raises PlanRefused as they do."""
        return self.result(self.submit(message, masks))

    def submit(self, message: StepPlan, masks: LateMasks | None = None) -> Pending:
        """Apply a plan and begin to compute its rows. Where masks follow it, `masks` is called once the logits are there.

        Raises PlanRefused: INVALID and OUT_OF_SEQUENCE have changed nothing, the other reasons have emptied all slots.
        """
        started = time.perf_counter()
        with self.failing(message.step):
            plan = read_plan(message)
            counts = foresee(plan, self.slots, self.limits, self.last_step)
            if plan.rows.are_masks_late and (masks is None or not takes_late_masks(self.ops)):
                raise refuse("masks are to follow, which this worker does not take")
            self.open = (plan.rows, masks) if plan.rows.are_masks_late and masks is not None else None
            return self.run(plan, counts, started)

    def run(self, plan: Plan, counts: Counts, started: float) -> Pending:
        """The order here is the order in which a plan's effects are observed."""
        swapped = self.cache.swapped_bytes
        self.cache.swap_out(plan.swap_out)
        self.cache.swap_in(plan.swap_in)
        swapped = self.cache.swapped_bytes - swapped
        self.cache.copy(plan.copy)
        self.cache.zero(plan.zero)
        apply(plan, counts, self.slots)
        if len(plan.rows.slot):
            self.run_rows(plan.rows)
        self.last_step = plan.step
        tokens = self.ops.fetch(self.sampled, len(plan.rows.sample_slot))
        return Pending(plan.step, started, tokens, self.fetch_scores(plan.rows), plan.rows.num_best, swapped)

    def fetch_scores(self, rows: Rows) -> tuple[Fetched, Fetched] | None:
        """Log-probabilities and their tokens, if any are asked for."""
        if not len(rows.score_slot):
            return None
        values, ids = (self.ops.fetch(each, len(rows.score_slot) * SCORE_WIDTH) for each in self.scores)
        return values, ids

    def run_rows(self, rows: Rows) -> None:
        """Begin to compute the rows, to sample and to remember the samples."""
        if self.cache.moving:
            self.cache.settle(self.slots.table[rows.slot])
        fill(self.step, rows, self.slots)
        if self.open is not None and self.decoder.replay_open is not None:
            self.decoder.replay_open()
        else:
            masks.fill(self.masks, rows, self.step, self.slots)
            self.decoder.replay()
        advance(rows, self.slots)
        self.counters.tokens_computed += self.step.num_tokens
        self.counters.tokens_sampled += len(rows.sample_slot)

    def take_masks(self) -> None:
        """Those that the step which runs was sent without."""
        assert self.open is not None
        rows, late = self.open
        masks.fill(self.masks, replace(rows, mask=late_masks(late(), rows, self.limits)), self.step, self.slots)

    def result(self, pending: Pending) -> StepResult:
        """Wait for what was submitted. Raises PlanRefused (FAILED, OUT_OF_MEMORY)."""
        with self.failing(pending.step):
            tokens, logprobs = pending.tokens.wait(), pending.logprobs()
        began, self.finished = max(pending.started, self.finished), time.perf_counter()
        swap_seconds, before = self.ops.swap_seconds(), self.swap_seconds
        self.swap_seconds = swap_seconds
        self.counters.steps += 1
        return write_result(
            step=pending.step,
            tokens=tokens,
            logprobs=logprobs,
            execute_seconds=self.finished - began,
            swapped_bytes=pending.swapped_bytes,
            swap_seconds=swap_seconds - before if pending.swapped_bytes else 0.0,
        )

    @contextmanager
    def failing(self, step: int) -> Iterator[None]:
        """Whatever a step dies of, the worker lives on and says so."""
        try:
            yield
        except PlanRefused:
            self.counters.plans_refused += 1
            raise
        except Exception as error:
            self.slots.clear()
            self.counters.plans_refused += 1
            reason = Reason.OUT_OF_MEMORY if is_memory(error) else Reason.FAILED
            raise PlanRefused(reason, f"step {step} failed: {type(error).__name__}: {error}") from error


def build_runner(
    config: WorkerConfig,
    progress: Callable[[int, int], None] = lambda done, total: None,
    group: Group = ALONE,
    make: Callable[[WorkerConfig, Weights, Ops, Precision, Geometry, int, Group], Runner] = Runner,
) -> Runner:
    """Load the model and make the pool. `progress(layers read, layers in all)`. Raises WorkerError."""
    engine = Engine(config.model) if is_engine(config.model) else None
    config = engine.settle(config) if engine else config
    ops = group.joined(pick_kernels(config))
    precision = choose(config, ops)
    source = engine or open_source(config.model)
    warn_of_range(precision, source.config)
    if isinstance(source, Engine):
        weights = source.load(ops)
    else:
        weights = load(source, ops, precision.weights, progress, group.shard)
    a = weights.architecture
    geometry = Geometry(config.page_size, a.layers, a.kv_heads, a.head_dim, precision.cache)
    return make(config, weights, ops, precision, geometry, context_of(config, a), group)


def context_of(config: WorkerConfig, architecture: Architecture) -> int:
    """Tokens of the longest sequence, at most as many as the model's positions reach. Raises ConfigError."""
    most = architecture.max_context
    if (config.max_context or 0) > most:
        raise ConfigError(f"--max-context {config.max_context} is more than the model's positions reach: {most} tokens")
    return config.max_context or most
