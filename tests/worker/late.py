"""Plans with everything in them, and two ways to execute them."""

import math
from collections.abc import Iterator

import numpy as np
from octavo.v1 import step_pb2 as wire
from octavo_worker.runner import Runner

from tests.worker.plans import ALWAYS, Bias, biased, growth, moves, new_slots, pairs_of, rows, scored, tokens_of, uint16

RANDOM = np.random.default_rng(11)
PROMPTS = {slot: RANDOM.integers(3, 320, 9 + 7 * slot).tolist() for slot in range(4)}
BIASES: list[Bias] = [
    *((token, -math.inf, 14, 0) for token in range(1, 320, 3)),
    *((token, 4.0, ALWAYS, 0) for token in range(2, 320, 3)),
    *(
        each
        for token in range(2, 320, 3)
        for each in ((token, 0.0, ALWAYS, -1), ((token + 3) % 320, -math.inf, ALWAYS, 1))
    ),
]
"""Slot 0 has none of some tokens at first, more of others, and not one of these after the one before it."""
SAMPLING = {"temperature": 0.8, "top_p": 0.9, "seed": 5, "repetition_penalty": 1.2}


def plans() -> Iterator[wire.StepPlan]:
    """Prompts in chunks beside decodes, growth, a fork, swaps of which some are waited for and some are not, a free."""
    first = new_slots({0: PROMPTS[0], 1: PROMPTS[1]}, sampling=SAMPLING)
    biased(first, BIASES)
    yield wire.StepPlan(new_slots=first, growth=growth({0: [1, 2], 1: [3, 4]}), rows=rows({0: 9, 1: 16}))
    yield wire.StepPlan(rows=rows({0: 1, 1: 1}))
    yield wire.StepPlan(
        new_slots=new_slots({2: PROMPTS[2]}), growth=growth({2: [5, 6, 7]}), rows=rows({0: 1, 1: 1, 2: 20}, [1, 1, 0])
    )
    forked = wire.Forks(source=uint16(2), target=uint16(4), branch=uint16(1), seed=(99).to_bytes(8, "little"))
    both = wire.Rows(
        slot=uint16(0, 1, 2),
        num_tokens=np.array([1, 1, 3], "<i4").tobytes(),
        num_samples=uint16(1, 1, 2),
        sample_slot=uint16(0, 1, 2, 4),
    )
    yield wire.StepPlan(forks=forked, rows=both)
    yield wire.StepPlan(copy=moves({6: 8}), growth=growth({4: [8]}, [2]), rows=rows({0: 1, 1: 1, 2: 1, 4: 1}))
    yield wire.StepPlan(swap_out=moves({3: 1, 4: 2}), freed_slot=uint16(1), rows=rows({0: 1, 2: 1}))  # beside the rows
    yield wire.StepPlan(
        new_slots=new_slots({3: PROMPTS[3]}), growth=growth({3: [3, 4, 12]}), rows=rows({0: 1, 3: 30})
    )  # writes pages that were swapped out one step ago
    yield wire.StepPlan(rows=rows({0: 1, 2: 1, 3: 1}))
    back = wire.StepPlan(swap_in=moves({1: 9, 2: 10}), zero=np.array([11], "<i4").tobytes())
    known = new_slots({1: [*PROMPTS[1], *[7] * 5]}, computed=20, num_prompt=16, sampling=SAMPLING)
    back.MergeFrom(wire.StepPlan(new_slots=known, growth=growth({1: [9, 10]}), rows=rows({1: 1, 0: 1, 3: 1})))
    yield back  # its rows name what comes back
    for nth in range(3):
        message = rows({0: 1, 1: 1, 2: 1, 3: 1, 4: 1})
        yield wire.StepPlan(rows=scored(message, [(0, 18 + nth)], 2) if nth else message)


def numbered() -> list[wire.StepPlan]:
    """Each with its step; the first is full."""
    made = list(plans())
    for step, plan in enumerate(made, 1):
        plan.step = step
    return made


def said(result: wire.StepResult) -> list[int]:
    """Tokens, then those whose log-probabilities are told."""
    return [*tokens_of(result), *pairs_of(result, 2)[0].reshape(-1).tolist()]


def one_after_the_other(runner: Runner) -> list[list[int]]:
    return [said(runner.execute(plan)) for plan in numbered()]


def two_in_flight(runner: Runner) -> list[list[int]]:
    """The second plan is always submitted before the result of the first is taken."""
    pending, found = [], []
    for plan in numbered():
        pending.append(runner.submit(plan))
        if len(pending) == 2:
            found.append(said(runner.result(pending.pop(0))))
    return [*found, *(said(runner.result(each)) for each in pending)]
