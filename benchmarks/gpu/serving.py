"""Whole steps of a worker over random weights: steps a second, tokens a second, swaps.

All layers have the same matrices, which a step reads as often as if they had their own: a layer of an 8B model is larger
than the caches of a GPU.
"""

import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from octavo.v1 import step_pb2 as wire
from octavo_kernels.ops import Geometry, Ops, Weight
from octavo_worker.architecture import Architecture
from octavo_worker.config import WorkerConfig
from octavo_worker.precision import Precision
from octavo_worker.rope import Rope
from octavo_worker.runner import Runner
from octavo_worker.weights import Layer, Weights

from benchmarks.roofline import Model
from tests.worker.plans import growth, moves, new_slots, rows, uint16

STEPS = 40
CHUNK = 512


def random_weights(model: Model, ops: Ops, format: str, max_context: int) -> Weights:
    """Of a shape; small enough that activations stay finite."""
    random = np.random.default_rng(0)

    def matrix(outputs: int, inputs: int) -> Weight:
        return ops.pack(random.standard_normal((outputs, inputs), np.float32) / np.float32(inputs**0.5), None, format)

    a = Architecture(
        hidden=model.hidden,
        layers=model.layers,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        intermediate=model.intermediate,
        vocab=model.vocab,
        eps=1e-5,
        max_context=max_context,
        rope=Rope(theta=500_000.0),
        windows=(0,) * model.layers,
    )
    ones = ops.share(np.ones(model.hidden, np.float32))
    layer = Layer(
        attention_norm=ones,
        qkv=matrix(a.q_width + 2 * a.kv_width, model.hidden),
        output=matrix(model.hidden, a.q_width),
        feed_forward_norm=ones,
        gate=matrix(model.intermediate, model.hidden),
        up=matrix(model.intermediate, model.hidden),
        down=matrix(model.hidden, model.intermediate),
    )
    embedding = matrix(model.vocab, model.hidden)
    frequencies = a.rope.frequencies(model.head_dim)
    return Weights(a, embedding, [layer] * model.layers, ones, embedding, frequencies, bytes(32))


def random_runner(model: Model, ops: Ops, *, slots: int, context: int, host_pages: int = 0) -> Runner:
    """A worker with as many pages as `slots` sequences of `context` tokens need."""
    pages = slots * -(-context // 16)
    config = WorkerConfig(
        model=Path("random"),
        pages=pages,
        host_pages=host_pages,
        max_slots=slots,
        max_step_tokens=2048,
        max_context=context,
    )
    dtype = ops.dtypes[0]
    geometry = Geometry(16, model.layers, model.kv_heads, model.head_dim, dtype)
    return Runner(
        config, random_weights(model, ops, dtype, context), ops, Precision(dtype, dtype, dtype), geometry, context
    )


class Driven:
    """A runner with two plans in flight."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.step, self.pending = runner, 0, deque[Any]()

    def send(self, **parts: Any) -> None:
        """Submit a plan; take the result of the one before the last."""
        self.step += 1
        self.pending.append(self.runner.submit(wire.StepPlan(step=self.step, **parts)))
        if len(self.pending) == 2:
            self.runner.result(self.pending.popleft())

    def settle(self) -> None:
        """Take all results."""
        while self.pending:
            self.runner.result(self.pending.popleft())


def step_time(runner: Runner, count: int, context: int, steps: int = STEPS) -> float:
    """Seconds a step in which `count` rows decode at about `context` tokens; their K and V are whatever the pages hold."""
    runner.reset()
    driven, each = Driven(runner), -(-(context + 2 * steps) // 16)
    history = [1] * context
    for slot in range(count):
        pages = range(1 + slot * each, 1 + (slot + 1) * each)
        driven.send(new_slots=new_slots({slot: history}, computed=context - 1), growth=growth({slot: pages}))
    plan = {"rows": wire.Rows(slot=uint16(*range(count)))}
    for _ in range(steps):  # compiled, captured
        driven.send(**plan)
    driven.settle()
    started = time.perf_counter()
    for _ in range(steps):
        driven.send(**plan)
    driven.settle()
    return (time.perf_counter() - started) / steps


def load_rate(runner: Runner, count: int, prompt: int, steps: int = STEPS) -> tuple[float, float]:
    """(tokens computed, tokens sampled) a second while `count` rows decode beside chunks of prompts that come one after
    the other."""
    runner.reset()
    driven, each = Driven(runner), -(-(prompt + 4 * steps) // 16)
    history = {slot: [1] * prompt for slot in range(count)}
    tables = {slot: range(1 + slot * each, 1 + (slot + 1) * each) for slot in history}
    driven.send(new_slots=new_slots(history, computed=prompt - 1), growth=growth(tables))
    chunk = min(CHUNK, prompt)

    def run(steps: int) -> None:
        for _ in range(steps):
            driven.send(
                new_slots=new_slots({count: [1] * prompt}),
                growth=growth({count: range(1 + count * each, 1 + (count + 1) * each)}),
                rows=rows({**dict.fromkeys(range(count), 1), count: chunk}, [1] * count + [0]),
            )
            driven.send(freed_slot=uint16(count))

    run(4)
    driven.settle()
    before, started = (runner.counters.tokens_computed, runner.counters.tokens_sampled), time.perf_counter()
    run(steps)
    driven.settle()
    seconds = time.perf_counter() - started
    after = (runner.counters.tokens_computed, runner.counters.tokens_sampled)
    return (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds


def swap_rate(runner: Runner, pages: int, rounds: int = 4) -> float:
    """Bytes a second, out and in again."""
    runner.reset()
    pairs = {page: page for page in range(1, 1 + pages)}
    results = []
    for step in range(1, 2 * rounds + 1):
        moved = wire.StepPlan(swap_out=moves(pairs)) if step % 2 else wire.StepPlan(swap_in=moves(pairs))
        moved.step = step
        results.append(runner.execute(moved))
    timed = results[2:]  # main memory is taken when it is first used
    return sum(each.swapped_bytes for each in timed) / sum(each.swap_seconds for each in timed)
