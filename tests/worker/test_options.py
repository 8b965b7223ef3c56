"""Log-probabilities and biases of a real (tiny) model: those of its own logits, whatever else is in the step."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from octavo.v1 import step_pb2 as wire
from octavo_worker.errors import PlanRefused, Reason
from octavo_worker.limits import MOST_BIASES, MOST_PROMPT_SCORES
from octavo_worker.runner import Runner
from safetensors.numpy import load_file, save_file

from tests.doubles.tiny_model import make_tiny_model
from tests.worker.plans import (
    ALWAYS,
    Bias,
    Driver,
    biased,
    growth,
    new_slots,
    pairs_of,
    rows,
    scored,
    tokens_of,
    uint16,
)

Make = Callable[..., Runner]
IDS = np.random.default_rng(5).integers(3, 320, 400).tolist()


def truth(runner: Runner, row: int, width: int) -> np.ndarray:
    """Of the logits that the last step left."""
    return np.asarray(torch.as_tensor(runner.decoder.logits[row]).double().log_softmax(-1))[:width]


def prefill(driver: Driver, prompts: Mapping[int, Sequence[int]], num_best: int = 3) -> wire.StepResult:
    """All prompts in one step, with log-probabilities of every prompt token and of the samples."""
    size = driver.runner.config.page_size
    places = [(slot, place) for slot, prompt in prompts.items() for place in range(1, len(prompt) + 1)]
    driver.send(
        new_slots=new_slots(prompts),
        growth=growth({slot: driver.take(-(-(len(prompt) + 1) // size)) for slot, prompt in prompts.items()}),
        rows=scored(rows({slot: len(prompt) for slot, prompt in prompts.items()}), places, num_best),
    )
    return driver.results[-1]


def test_prompt_tokens_and_samples_have_those_of_the_models_logits(make_runner: Make) -> None:
    driver = Driver(make_runner())
    prompt = IDS[:20]
    result = prefill(driver, {2: prompt})
    tokens, values = pairs_of(result, 3)
    assert tokens[:, 0].tolist() == [*prompt[1:], *tokens_of(result)]
    for place in range(20):
        wanted = truth(driver.runner, place, 320)
        best = np.argsort(-wanted, kind="stable")[:3]
        assert tokens[place, 1:].tolist() == best.tolist()
        np.testing.assert_allclose(values[place], wanted[tokens[place]], rtol=1e-5, atol=1e-5)


def test_they_are_the_same_bits_alone_among_others_and_in_chunks(make_runner: Make) -> None:
    prompts = {0: IDS[:9], 3: IDS[50:63], 1: IDS[100:117]}
    together = pairs_of(prefill(Driver(make_runner(invariant=True)), prompts), 3)
    first = 0
    for slot, prompt in prompts.items():
        alone = pairs_of(prefill(Driver(make_runner(invariant=True)), {slot: prompt}), 3)
        for one, other in zip(alone, together, strict=True):
            assert one.tobytes() == other[first : first + len(prompt)].tobytes()
        driver, parts = Driver(make_runner(invariant=True)), b""
        begin = {"new_slots": new_slots({slot: prompt}), "growth": growth({slot: driver.take(2)})}
        for start in range(0, len(prompt), 4):
            size = min(4, len(prompt) - start)
            places = [(slot, place) for place in range(start + 1, start + size + 1)]
            driver.send(rows=scored(rows({slot: size}, [int(start + size == len(prompt))]), places, 3), **begin)
            parts, begin = parts + driver.results[-1].logprobs, {}
        whole = wire.StepResult(logprobs=parts)
        assert [each.tobytes() for each in pairs_of(whole, 3)] == [each.tobytes() for each in alone]
        first += len(prompt)


def test_only_those_who_ask_have_any_and_forks_have_their_own(make_runner: Make) -> None:
    driver = Driver(make_runner())
    message = rows({0: 5, 1: 6}, [2, 1])
    message.sample_slot = uint16(0, 4, 1)
    out = driver.send(
        new_slots=new_slots({0: IDS[:5], 1: IDS[20:26]}, sampling={"temperature": 1.0}),
        growth=growth({0: driver.take(1), 1: driver.take(1)}),
        forks=wire.Forks(source=uint16(0), target=uint16(4), branch=uint16(1), seed=np.array([9], "<u8").tobytes()),
        rows=scored(message, [(4, 5), (1, 6)], 0),
    )
    tokens, values = pairs_of(driver.results[-1], 0)
    assert tokens[:, 0].tolist() == [out[1], out[2]]
    assert values[0, 0] == pytest.approx(truth(driver.runner, 0, 320)[out[1]], abs=1e-5)
    driver.send(rows=wire.Rows(slot=uint16(0, 1)))
    assert driver.results[-1].logprobs == b""


def test_biases_change_what_is_sampled_and_no_log_probability(make_runner: Make) -> None:
    plain = Driver(make_runner())
    (best,) = plain.send(
        new_slots=new_slots({0: IDS[:9]}), growth=growth({0: [1, 2]}), rows=scored(rows({0: 9}), [(0, 9)], 1)
    )
    driver = Driver(make_runner())
    (forced,) = driver.send(
        new_slots=biased(new_slots({0: IDS[:9], 1: IDS[:9]}), [(77, 100.0, ALWAYS, 0)]),
        growth=growth({0: [1, 2], 1: [3, 4]}),
        rows=scored(rows({0: 9}), [(0, 9)], 1),
    )
    assert (forced, best) == (77, pairs_of(plain.results[0], 1)[0][0, 1])
    tokens, values = pairs_of(driver.results[0], 1)
    assert tokens[0].tolist() == [77, best]
    np.testing.assert_allclose(values[0], truth(driver.runner, 0, 320)[[77, best]], atol=1e-5)
    assert driver.send(rows=rows({1: 9})) == [best], "biases are a slot's own"


def test_SP01_a_forbidden_token_never_comes_beside_greedy_and_random_rows(make_runner: Make) -> None:
    free = Driver(make_runner()).generate(IDS[:9], 12)
    driver = Driver(make_runner())
    banned = sorted(set(free))
    driver.send(
        new_slots=biased(new_slots({0: IDS[:9]}), [(token, -math.inf, ALWAYS, 0) for token in banned]),
        growth=growth({0: [1, 2, 3]}),
        rows=rows({0: 9}),
    )
    driver.send(
        new_slots=new_slots({1: IDS[:9]}, sampling={"temperature": 1.0}),
        growth=growth({1: [4, 5, 6]}),
        rows=rows({1: 9}),
    )
    for _ in range(10):
        greedy, sampled = driver.send(rows=wire.Rows(slot=uint16(0, 1)))
        assert greedy >= 0
        assert sampled >= 0
        assert greedy not in banned


def test_a_word_is_forbidden_by_tokens_that_the_worker_sampled_itself(make_runner: Make) -> None:
    free = Driver(make_runner()).generate(IDS[:9], 8)
    word = [(free[3], 0.0, ALWAYS, -1), (free[4], 0.0, ALWAYS, -1), (free[5], -math.inf, ALWAYS, 2)]
    driver = Driver(make_runner())
    out = driver.send(new_slots=biased(new_slots({0: IDS[:9]}), word), growth=growth({0: [1, 2]}), rows=rows({0: 9}))
    for _ in range(5):
        out += driver.send(rows=wire.Rows(slot=uint16(0)))
    assert out[:5] == free[:5]
    assert out[5] != free[5]


def test_a_slot_that_is_used_again_has_none_of_the_biases_of_before(make_runner: Make) -> None:
    driver = Driver(make_runner())
    forced = biased(new_slots({0: IDS[:9]}), [(77, 100.0, ALWAYS, 0)])
    assert driver.send(new_slots=forced, growth=growth({0: [1]}), rows=rows({0: 9})) == [77]
    free = Driver(make_runner()).generate(IDS[:9], 1)
    assert (
        driver.send(freed_slot=uint16(0), new_slots=new_slots({0: IDS[:9]}), growth=growth({0: [1]}), rows=rows({0: 9}))
        == free
    )


@pytest.mark.parametrize(
    ("bias", "sentence"),
    [
        ((320, 0.0, 9, 0), "bias_token lies in 0..319"),
        ((-1, 0.0, 9, 0), "bias_token lies in 0..319"),
        ((1, math.nan, 9, 0), "bias is out of range"),
        ((1, math.inf, 9, 0), "bias is out of range"),
        ((1, 0.0, 9, 1), "biases that its slot does not have"),
        ((1, 0.0, 9, -2), "biases that its slot does not have"),
    ],
)
def test_a_plan_with_a_bias_that_makes_no_sense_is_refused(make_runner: Make, bias: Bias, sentence: str) -> None:
    driver = Driver(make_runner())
    with pytest.raises(PlanRefused, match=sentence) as refused:
        driver.send(new_slots=biased(new_slots({0: IDS[:3]}), [bias]))
    assert refused.value.reason is Reason.INVALID
    too_many = [(1, 0.0, 9, 0)] * (MOST_BIASES + 1)
    with pytest.raises(PlanRefused, match="num_biases"):
        Driver(driver.runner).send(new_slots=biased(new_slots({0: IDS[:3]}), too_many))


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ([(0, 0)], "a token that no row leads to"),
        ([(0, 6)], "a token that no row leads to"),
        ([(1, 3)], "which is not in use"),
        ([(2, 3)], "a slot that has no row"),
        ([(0, 1)] * (MOST_PROMPT_SCORES + 65), "has at most 128 rows of logits"),
    ],
)
def test_a_plan_that_asks_for_what_no_row_leads_to_is_refused(
    make_runner: Make, places: list[tuple[int, int]], sentence: str
) -> None:
    driver = Driver(make_runner())
    with pytest.raises(PlanRefused, match=sentence):
        driver.send(
            new_slots=new_slots({0: IDS[:5], 2: IDS[:5]}),
            growth=growth({0: [1], 2: [2]}),
            rows=scored(rows({0: 5}), places, 1),
        )
    with pytest.raises(PlanRefused, match="num_best"):
        Driver(driver.runner).send(
            new_slots=new_slots({3: IDS[:5]}), growth=growth({3: [1]}), rows=scored(rows({3: 5}), [(3, 5)], 21)
        )


def test_a_step_that_needs_too_many_rows_of_logits_is_refused(make_runner: Make) -> None:
    driver = Driver(make_runner())
    with pytest.raises(PlanRefused, match="at most 128 rows of logits"):
        prefill(driver, {0: IDS[:129]})
    assert len(pairs_of(prefill(Driver(driver.runner), {0: IDS[:128]}), 3)[0]) == 128


def test_a_step_may_tell_of_as_many_prompt_tokens_as_hello_says(make_runner: Make) -> None:
    driver = Driver(make_runner())
    assert driver.runner.hello().max_prompt_scores == MOST_PROMPT_SCORES
    prompts = {slot: IDS[slot * 17 : slot * 17 + 17] for slot in range(4)}
    assert len(pairs_of(prefill(driver, prompts), 3)[0]) == MOST_PROMPT_SCORES + 4


def test_SP04_a_greedy_answer_is_the_same_alone_and_beside_others(make_runner: Make) -> None:
    alone = Driver(make_runner(invariant=True)).generate(IDS[:9], 6)
    for number in range(1, 8, 3):
        driver = Driver(make_runner(invariant=True))
        prompts = {slot: IDS[30 * slot : 30 * slot + 3 + 2 * slot] for slot in range(1, 1 + number)} | {0: IDS[:9]}
        pages = {slot: driver.take(2) for slot in prompts}
        rows_of = rows({slot: len(prompt) for slot, prompt in prompts.items()})
        out = [driver.send(new_slots=new_slots(prompts), growth=growth(pages), rows=rows_of)[-1]]
        while len(out) < 6:
            out.append(driver.send(rows=wire.Rows(slot=uint16(*prompts)))[-1])
        assert out == alone


def with_padding(folder: Path, winner: int) -> Path:
    """A tiny model with ten rows more than tokens, of which one is ahead of all tokens."""
    make_tiny_model(folder)
    weights = load_file(folder / "model.safetensors")
    rows_of = weights["model.embed_tokens.weight"]
    norms = np.random.default_rng(0).standard_normal((10, rows_of.shape[1])).astype(np.float32)
    weights["lm_head.weight"] = np.concatenate((rows_of, norms))
    weights["model.embed_tokens.weight"] = np.concatenate((rows_of, norms))
    weights["lm_head.weight"][winner] = 50 * np.abs(rows_of).max()
    weights["lm_head.weight"][winner, ::2] *= -1
    weights["lm_head.weight"][winner + 1] = -weights["lm_head.weight"][winner]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 330, "tie_word_embeddings": False}))
    return folder


def test_SP14_rows_of_the_head_that_are_no_tokens_are_never_sampled(make_runner: Make, tmp_path: Path) -> None:
    runner = make_runner(model=with_padding(tmp_path / "padded", winner=325))
    assert runner.hello().vocab_size == 320
    driver = Driver(runner)
    result = prefill(driver, {0: IDS[:9]})
    whole = torch.as_tensor(np.asarray(runner.decoder.activations.logits[8]))
    assert int(whole.argmax()) in (325, 326), "it would have won"
    assert tokens_of(result)[0] == int(whole[:320].argmax())
    assert pairs_of(result, 3)[0].max() < 320
    runner.reset()
    assert max(Driver(runner).generate(IDS[:9], 6, sampling={"temperature": 5.0})) < 320
    runner.reset()
    with pytest.raises(PlanRefused, match=r"new_slots\.tokens lies in 0..319"):
        Driver(runner).send(new_slots=new_slots({1: [325]}))
