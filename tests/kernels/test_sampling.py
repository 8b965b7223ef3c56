"""Choosing tokens: the order of the filters, the draw itself, and its statistics."""

import math

import pytest
import torch
from octavo_kernels.ops import Ops, Sampling
from octavo_kernels.reference import sampling as reference
from octavo_kernels.reference.philox import uniform
from torch import Tensor

from tests.kernels.implementations import build, every_ops
from tests.kernels.samplers import sample, sampling_of, step_of


def by_hand(logits: Tensor, sampling: Sampling, slot: int) -> int:
    """One token, written down from the rule, in float64 and with a Python sort."""
    logits = logits.double() / float(sampling.temperature[slot])
    ranking = sorted(range(len(logits)), key=lambda token: (-float(logits[token]), token))
    weight = [math.exp(float(logits[token] - logits.max())) for token in ranking]
    kept = min(int(sampling.top_k[slot]) or len(weight), len(weight))
    mass, upto, nucleus = sum(weight[:kept]), 0.0, kept
    for i in range(kept):
        upto += weight[i]
        if upto >= float(sampling.top_p[slot]) * mass:
            nucleus = i + 1
            break
    kept = min(kept, nucleus)
    kept = max(1, sum(w >= float(sampling.min_p[slot]) for w in weight[:kept]))
    u = float(uniform(sampling.length[slot], sampling.branch[slot], 0, sampling.seed[slot]))
    upto, mass = 0.0, sum(weight[:kept])
    for i in range(kept):
        upto += weight[i]
        if upto > u * mass:
            return ranking[i]
    return ranking[kept - 1]


@every_ops
@pytest.mark.parametrize("spread", [0.5, 3.0])  # flat: draws beyond the shortlist; steep: within it
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"top_k": 1},
        {"top_k": 7},
        {"top_k": 700},
        {"top_k": 5000},
        {"top_p": 0.3},
        {"top_p": 0.95},
        {"min_p": 0.2},
        {"min_p": 0.01},
        {"top_k": 40, "top_p": 0.8},
        {"top_k": 600, "top_p": 0.99, "min_p": 0.001},
    ],
)
def test_draws_follow_the_rule(ops: Ops, filters: dict[str, float], spread: float) -> None:
    slots = 40 if ops.name != "triton" else 8
    logits = torch.randn(slots, 1000, generator=torch.Generator().manual_seed(3)) * spread
    sampling = sampling_of(slots, temperature=0.8, seed=torch.arange(slots) * 7919, length=12, **filters)
    assert sample(ops, logits, sampling) == [by_hand(logits[i], sampling, i) for i in range(slots)]


@pytest.mark.parametrize("width", [1, 5, 300, 1000])
def test_the_length_of_the_shortlist_changes_no_draw(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = build("reference")
    logits = torch.randn(60, 1000).round(decimals=1)  # with many ties
    sampling = sampling_of(60, temperature=0.7, top_p=0.9, min_p=0.002, seed=torch.arange(60))
    truth = sample(ops, logits, sampling)
    monkeypatch.setattr(reference, "SHORTLIST", width)
    assert sample(ops, logits, sampling) == truth


@every_ops
def test_temperature_zero_takes_the_lowest_of_the_largest(ops: Ops) -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0], [-1.0, -math.inf, -1.0, -1.0]])
    assert sample(ops, logits, sampling_of(2)) == [1, 0]


@every_ops
@pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-30])
@pytest.mark.parametrize("filters", [{}, {"top_k": 5, "top_p": 0.5}, {"min_p": 0.1}])
def test_a_tiny_temperature_takes_the_largest_like_zero(
    ops: Ops, temperature: float, filters: dict[str, float]
) -> None:
    rows = 50 if ops.name != "triton" else 4
    logits = torch.randn(rows, 700, generator=torch.Generator().manual_seed(1)) * 20
    logits[::2] -= 100  # all of a row below zero
    sampling = sampling_of(rows, temperature=temperature, seed=torch.arange(rows), **filters)
    assert sample(ops, logits, sampling) == logits.argmax(-1).tolist()


@every_ops
def test_ties_are_ranked_by_token_id(ops: Ops) -> None:
    rows = 200 if ops.name != "triton" else 30
    logits = torch.zeros(rows, 50)
    logits[:, ::2] = -0.0
    draws = sample(ops, logits, sampling_of(rows, temperature=1, top_k=3, seed=torch.arange(rows)))
    assert set(draws) == {0, 1, 2}


@every_ops
def test_a_token_without_probability_is_never_drawn(ops: Ops) -> None:
    rows = 3000 if ops.name != "triton" else 30
    logits = torch.full((rows, 300), -math.inf)
    logits[:, 17] = logits[:, 250] = 0.0
    draws = sample(ops, logits, sampling_of(rows, temperature=1, seed=torch.arange(rows)))
    assert set(draws) == {17, 250}


@every_ops
def test_frequencies_match_probabilities(ops: Ops) -> None:
    draws, logits = 20_000 if ops.name != "triton" else 300, torch.tensor([1.0, 0.0, -1.0, 2.0, 0.5, -3.0])
    sampling = sampling_of(draws, temperature=1, seed=42, length=torch.arange(draws))
    seen = torch.bincount(torch.tensor(sample(ops, logits.expand(draws, -1), sampling)), minlength=6)
    expected = logits.softmax(0) * draws
    assert float(((seen - expected) ** 2 / expected).sum()) < 20.5  # chi-square, 5 degrees, p = 0.001


@every_ops
def test_a_draw_depends_on_seed_position_and_branch_alone(ops: Ops) -> None:
    logits = torch.randn(1, 500)
    sampling = sampling_of(4, temperature=1.5, seed=torch.tensor([5, 5, 5, 6]), branch=torch.tensor([0, 0, 1, 0]))
    draws = [[sample(ops, logits, sampling, [slot])[0] for slot in range(4)]]
    for position in range(1, 6):
        sampling.length.fill_(position)
        draws.append([sample(ops, logits, sampling, [slot])[0] for slot in range(4)])
    first, second, branch, seed = zip(*draws, strict=True)
    assert first == second
    assert first != branch
    assert first != seed
    assert len(set(first)) > 1


def test_repetition_counts_prompt_and_answer_and_the_others_the_answer_only() -> None:
    history, none = torch.tensor([[0, 1, 2, 2, 3]]), torch.zeros(1, 6)
    base = {"history": history, "length": 4, "num_prompt": 2}  # prompt 0 1, answer 2 2; the 3 is past the end

    def penalised(logits: Tensor, **penalty: float) -> list[float]:
        logits = logits.clone()
        reference.penalise(logits, torch.tensor([0]), sampling_of(1, **base, **penalty))
        result: list[float] = logits[0].tolist()
        return result

    assert penalised(none + 3, repetition_penalty=1.5) == [2, 2, 2, 3, 3, 3]
    assert penalised(none - 3, repetition_penalty=1.5) == [-4.5, -4.5, -4.5, -3, -3, -3]
    assert penalised(none, presence_penalty=0.5) == [0, 0, -0.5, 0, 0, 0]
    assert penalised(none, frequency_penalty=0.5) == [0, 0, -1, 0, 0, 0]


def test_SP10_a_repetition_penalty_makes_a_negative_logit_smaller() -> None:
    logits = torch.tensor([[-1.0, -2.0]])
    sampling = sampling_of(1, history=torch.tensor([[0]]), length=1, repetition_penalty=1.5)
    reference.penalise(logits, torch.tensor([0]), sampling)
    assert logits.tolist() == [[-1.5, -2.0]]


@every_ops
def test_SP10_what_was_said_does_not_come_again_the_sooner_because_its_logit_is_negative(ops: Ops) -> None:
    sampling = sampling_of(1, history=torch.tensor([[0]]), length=1, repetition_penalty=1.5)
    assert sample(ops, torch.tensor([[-1.0, -1.4]]), sampling) == [1]


@every_ops
@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-10, 1e-5, 1e-4, 0.01])
def test_SP02_SP20_a_tiny_temperature_is_greedy(ops: Ops, temperature: float) -> None:
    logits = torch.randn(3, 3000, generator=torch.Generator().manual_seed(3)) * 30
    logits[range(3), [7, 2999, 1500]] = 200.0
    sampling = sampling_of(3, temperature=temperature, seed=torch.tensor([1, 2, 3]))
    assert sample(ops, logits, sampling) == [7, 2999, 1500]


@every_ops
def test_SP05_a_temperature_without_any_filter_gives_many_tokens(ops: Ops) -> None:
    sampling = sampling_of(60, temperature=1.0, seed=torch.arange(60))
    assert len(set(sample(ops, torch.zeros(60, 100), sampling))) > 30


@every_ops
def test_penalties_come_before_temperature_and_change_greedy_choices_too(ops: Ops) -> None:
    logits = torch.tensor([[1.0, 0.9, 0.0]])
    sampling = sampling_of(1, history=torch.tensor([[0]]), length=1, presence_penalty=0.2)
    assert sample(ops, logits, sampling) == [1]


@every_ops
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("vocabulary", [40, 3000])
def test_a_row_that_went_wrong_gives_no_token_and_leaves_the_history(
    ops: Ops, temperature: float, vocabulary: int
) -> None:
    logits = torch.randn(5, vocabulary)
    logits[0, vocabulary - 1] = math.nan
    logits[1, 7] = math.inf
    logits[2] = -math.inf
    logits[3, 1:] = -math.inf  # what a grammar leaves
    sampling = sampling_of(5, temperature=temperature, history=torch.full((5, 4), 99), length=2, num_prompt=2)
    drawn = sample(ops, logits, sampling)
    assert drawn[:4] == [-1, -1, -1, 0]
    assert 0 <= drawn[4] < vocabulary
    assert sampling.history.tolist() == [[99] * 4] * 3 + [[99, 99, token, 99] for token in drawn[3:]]


@every_ops
def test_logits_stay_as_they_are(ops: Ops) -> None:
    logits = torch.randn(2, 300)
    sampling = sampling_of(2, history=torch.tensor([[5, 6], [7, 8]]), length=2, temperature=1, presence_penalty=1)
    step, out, before = step_of([0, 1]), torch.zeros(2, dtype=torch.int32), logits.clone()
    ops.sample(logits, sampling, step, out)
    assert torch.equal(logits, before)
