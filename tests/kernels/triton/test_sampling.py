"""Sampling by Triton kernels against the rule in float64: the same law in any batch, whatever the way to a rank."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from octavo_kernels.ops import Ops
from octavo_kernels.reference import sampling as reference
from octavo_kernels.reference.philox import uniform as uniform_of_reference
from octavo_kernels.triton.door import open_door
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.paper import Paper
from octavo_kernels.triton.sampling import Sampler
from octavo_kernels.triton.source.sampling import uniform

from tests.kernels.implementations import build
from tests.kernels.samplers import sample, sampling_of, step_of
from tests.kernels.sampling_rule import columns_of, draw, rule, tensors_of, uniform_of
from tests.kernels.triton.sampling_cases import VOCABULARIES, all_cases, check

ROUNDING = 1e-6
"""Of float32: nearer to a boundary than this share of all mass, either side is right."""
SHARE = 40


@pytest.fixture(scope="module")
def ops() -> Ops:
    return build("triton")


@pytest.mark.parametrize("vocabulary", VOCABULARIES[:-1])
def test_random_samples_follow_the_rule(ops: Ops, vocabulary: int, figure: Callable[[str], None]) -> None:
    cases = [case for case in all_cases() if case.vocabulary == vocabulary][::SHARE]
    errors = {case: check(case, ops) for case in cases}
    assert {case: error for case, error in errors.items() if error > ROUNDING} == {}
    assert sum(error > 0 for error in errors.values()) <= 1
    figure(f"{len(cases)} cases of {vocabulary} logits, worst error {max(errors.values()):.1g}")


def test_the_largest_vocabulary_is_read_to_its_end(ops: Ops) -> None:
    logits = np.random.default_rng(1).standard_normal((2, VOCABULARIES[-1]), np.float32) * np.float32(3)
    logits[1, -1] = 99
    sampling = columns_of(2, temperature=1, top_p=0.5, seed=7)
    assert draw(ops, logits, sampling) == [rule(logits[0], sampling, 0).token, VOCABULARIES[-1] - 1]


@triton.jit
def draw_uniform(position, branch, seed, out):
    i = tl.program_id(0)
    tl.store(out + i, uniform(tl.load(position + i), tl.load(branch + i), 0, tl.load(seed + i)))


def test_the_generator_is_that_of_the_reference_to_the_bit() -> None:
    random, count = np.random.default_rng(5), 200
    position, branch = (torch.from_numpy(random.integers(0, 2**20, count, np.int32)) for _ in range(2))
    seed, out = torch.from_numpy(random.integers(-(2**63), 2**63 - 1, count)), torch.zeros(count)
    draw_uniform[(count,)](position, branch, seed, out)
    assert torch.equal(out, uniform_of_reference(position, branch, 0, seed))


@pytest.mark.parametrize("vocabulary", [200, 20_000])  # all in the list of first ranks; too many ties for it
def test_a_draw_among_equals_is_the_generator_times_the_vocabulary(ops: Ops, vocabulary: int) -> None:
    logits = np.zeros((6, vocabulary), np.float32)
    logits[:, ::2] = -0.0
    random = np.random.default_rng(0)
    sampling = columns_of(6, temperature=1, seed=random.integers(0, 2**62, 6), length=random.integers(0, 9999, 6))
    assert draw(ops, logits, sampling) == [math.floor(uniform_of(sampling, i) * vocabulary) for i in range(6)]


@pytest.mark.parametrize("filters", [{}, {"top_k": 4000}, {"top_k": 4500, "top_p": 0.999}, {"min_p": 1e-7}])
def test_ranks_past_the_list_are_found_too(ops: Ops, filters: dict[str, float]) -> None:
    logits = np.random.default_rng(3).standard_normal((6, 5000), np.float32) * np.float32(0.1)
    sampling = columns_of(6, temperature=1, seed=np.arange(6), **filters)
    rulings = [rule(logits[i], sampling, i) for i in range(6)]
    assert max(ruling.token for ruling in rulings) > 1024
    assert draw(ops, logits, sampling) == [ruling.token for ruling in rulings]


def test_a_grammar_that_leaves_little_is_not_searched_for_more(ops: Ops) -> None:
    logits = np.full((30, 20_000), -np.inf, np.float32)
    logits[:, [17, 15_000]] = 1.5
    sampling = columns_of(30, temperature=1, top_k=[0, 1, 3] * 10, seed=np.arange(30))
    tokens = np.array(draw(ops, logits, sampling))
    assert set(tokens[1::3]) == {17}
    assert set(tokens) == {17, 15_000}


def test_a_draw_depends_on_nothing_else_in_the_batch(ops: Ops) -> None:
    rows, random = 8, np.random.default_rng(4)
    logits = random.standard_normal((rows, 3000), np.float32) * np.float32(1.5)
    columns: dict[str, Any] = {
        "temperature": np.arange(rows) % 4 * 0.5,
        "top_p": np.where(np.arange(rows) % 3 == 0, 0.9, 1),
        "top_k": np.arange(rows) % 3 * 300,
        "presence_penalty": np.arange(rows) % 2 * 0.5,
    }
    history = random.integers(0, 3000, (rows, 40))
    sampling = columns_of(rows, history=history, length=30, num_prompt=10, seed=np.arange(rows), **columns)
    together = draw(ops, logits, sampling)
    assert [draw(ops, logits, sampling, rows=[i], slots=[i])[0] for i in range(rows)] == together
    backwards = list(range(rows))[::-1]
    assert draw(ops, logits, sampling, rows=backwards, slots=backwards) == together[::-1]


@pytest.mark.parametrize("vocabulary", [31, 4096, 9001])
def test_penalties_are_those_of_the_reference_to_the_bit(vocabulary: int) -> None:
    slots, random = 6, np.random.default_rng(vocabulary)
    history, length = random.integers(0, vocabulary, (slots, 1500)) % 700, random.integers(1, 1500, slots)
    penalties = {name: random.choice([0, 0.3, -1], slots) for name in ("presence_penalty", "frequency_penalty")}
    more = {"repetition_penalty": random.choice([0.7, 1.3], slots), "num_prompt": length // 2}
    sampling = tensors_of(columns_of(slots, history=history, length=length, **penalties, **more))
    logits, penalised = torch.randn(slots, vocabulary) * 3, torch.full((slots, vocabulary), math.nan)
    sampler, step = Sampler(Launcher(Paper())), step_of(list(range(slots)))
    sampler.penalise(penalised, logits, sampling, step)
    reference.penalise(logits, torch.arange(slots), sampling)
    assert torch.equal(penalised, logits)


def test_a_history_that_is_full_takes_no_more(ops: Ops) -> None:
    sampling = sampling_of(2, history=[[5, 6], [7, 8]], length=2)
    assert sample(ops, torch.tensor([[0.0, 1.0], [1.0, 0.0]]), sampling) == [1, 0]
    assert sampling.history.tolist() == [[5, 6], [7, 8]]


def test_a_captured_draw_reads_what_is_there_when_it_is_replayed_and_no_more_samples_than_count() -> None:
    paper = Paper()
    ops, step, out = open_door(paper), step_of([0, 1, 2]), torch.full((3,), 9, dtype=torch.int32)
    sampling, logits = sampling_of(3, history=torch.zeros(3, 8), length=4), torch.randn(3, 2000)
    replay = paper.capture(lambda: ops.sample(logits, sampling, step, out))
    assert out.tolist() == [9, 9, 9]
    step.samples[0] = 2
    logits.copy_(torch.randn(3, 2000))
    replay()
    assert out.tolist() == [*logits[:2].argmax(-1).tolist(), 9]
    sampling.temperature.fill_(1)
    sampling.top_k.fill_(1)
    logits.neg_()
    replay()
    assert out.tolist() == [*logits[:2].argmax(-1).tolist(), 9]


def test_the_grid_depends_on_the_size_of_the_buffers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    grids: list[tuple[int, ...]] = []
    paper = Paper()
    monkeypatch.setattr(paper.main, "launch", lambda kernel, grid, *given, **options: grids.append(grid))
    ops, logits, out = open_door(paper), torch.randn(5, 9000), torch.zeros(5, dtype=torch.int32)
    for count, length in ((1, 0), (5, 90)):
        step, sampling = step_of(list(range(5))), sampling_of(5, length=length, history=torch.zeros(5, 100))
        step.samples[0] = count
        ops.sample(logits, sampling, step, out)
    assert grids[:2] == grids[2:]


def test_a_vocabulary_that_keys_have_no_room_for_is_refused(ops: Ops) -> None:
    with pytest.raises(ValueError, match="262144"):
        draw(ops, np.zeros((1, (1 << 18) + 1), np.float32), columns_of(1))
