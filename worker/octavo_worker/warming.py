"""A worker's first steps, before it joins: they warm the kernels up and measure how fast it is.

With these rates the scheduler weighs a preemption by swap against one by drop, until it has measured better ones.
"""

import numpy as np

from octavo_worker.batch import FLOAT32, INT32, UINT16, UINT64, StepPlan, StepResult
from octavo_worker.runner import Counters, Rates, Runner

PREFILL_TOKENS = 64
SWAP_PAGES = 8
SLOT = np.zeros(1, UINT16).tobytes()
ONE, ZERO = np.ones(1, FLOAT32).tobytes(), np.zeros(1, FLOAT32).tobytes()


def warm_up(runner: Runner) -> None:
    """Execute a few plans on an empty worker, note `runner.rates`, and leave it as empty as it was.

    Raises PlanRefused when a step fails.
    """
    limits = runner.limits
    num_tokens = min(
        PREFILL_TOKENS, limits.max_step_tokens, limits.device_pages * limits.page_size, runner.slots.max_context - 1
    )
    prefill_rate(runner, 1)  # the very first step takes longer, whatever its size
    runner.rates = Rates(copy_rate(runner), prefill_rate(runner, num_tokens))
    runner.reset()
    runner.counters, runner.cache.swapped_bytes = Counters(), 0


def self_test(runner: Runner) -> None:
    """Execute a step of one token and leave the worker empty. Raises PlanRefused when it fails."""
    chunk(runner, 1)
    runner.reset()


def prefill_rate(runner: Runner, num_tokens: int) -> float:
    """Tokens per second of one chunk."""
    return num_tokens / chunk(runner, num_tokens).execute_seconds


def chunk(runner: Runner, num_tokens: int) -> StepResult:
    """Of a first step with so many tokens."""
    pages = np.arange(1, 1 + -(-num_tokens // runner.limits.page_size), dtype=INT32)
    size = np.array([num_tokens], INT32).tobytes()
    plan = StepPlan(
        step=1,
        full=True,
        new_slots={
            "slot": SLOT,
            "num_tokens": size,
            "num_prompt": size,
            "num_computed": bytes(4),
            "tokens": bytes(4 * num_tokens),
            "temperature": ONE,
            "top_p": ONE,
            "min_p": ZERO,
            "top_k": bytes(4),
            "repetition_penalty": ONE,
            "presence_penalty": ZERO,
            "frequency_penalty": ZERO,
            "seed": np.zeros(1, UINT64).tobytes(),
            "branch": SLOT,
        },
        growth={"slot": SLOT, "num_pages": np.array([len(pages)], INT32).tobytes(), "pages": pages.tobytes()},
        rows={"slot": SLOT, "num_tokens": size},
    )
    runner.reset()
    return runner.execute(plan)


def copy_rate(runner: Runner) -> float:
    """Bytes per second between the tiers, both ways together; 0 without a host tier."""
    count = min(SWAP_PAGES, runner.limits.host_pages, runner.limits.device_pages)
    if not count:
        return 0.0
    pages = np.arange(1, 1 + count, dtype=INT32).tobytes()
    moves = {"source": pages, "target": pages}
    runner.reset()
    runner.execute(StepPlan(step=1, swap_out=moves, swap_in=moves))  # the system hands out memory when it is first used
    result = runner.execute(StepPlan(step=2, swap_out=moves, swap_in=moves))
    return result.swapped_bytes / result.swap_seconds
