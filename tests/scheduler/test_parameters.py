"""Every parameter has a range; what lies outside is refused before a worker hears of it, and nothing is ignored."""

import json
import math
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from octavo.v1 import inference_pb2 as pb
from octavo_client.params import SamplingParams
from octavo_scheduler.core.request import ALWAYS, NO_BIASES, RequestSpec
from octavo_scheduler.errors import InvalidRequest
from octavo_scheduler.model import ServedModel, load_model
from octavo_scheduler.prompts import parse_prompt
from octavo_scheduler.requests import Arrival, parse

from tests.doubles.tiny_model import make_tiny_model

ARRIVAL = Arrival(id="id", seed=77, now=0.5, deadline=1.0)
NAN, INF = math.nan, math.inf


def spec(model: ServedModel, **fields: object) -> RequestSpec:
    """Of a request with these sampling parameters, as the Python client sends them."""
    params = SamplingParams(**{"max_tokens": 64, **fields})  # type: ignore[arg-type]
    return parse(model, [5, 6], params.as_proto(), "", ARRIVAL).spec


def sampling(model: ServedModel, **fields: object) -> RequestSpec:
    return parse(model, [5, 6], pb.GenerationOptions(sampling=pb.SamplingOptions(**fields)), "", ARRIVAL).spec  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0, 1e-45, 1e-10, 1e-5, 0.01, 2, 100])
def test_SP02_a_temperature_may_be_zero_or_tiny(model: ServedModel, temperature: float) -> None:
    assert spec(model, temperature=temperature).sampling.temperature == float(np.float32(temperature))


@pytest.mark.parametrize("temperature", [1e6, -1, -1e-9, NAN, INF, -INF])
def test_SP02_a_temperature_is_no_negative_nor_infinite_number(model: ServedModel, temperature: float) -> None:
    with pytest.raises(InvalidRequest, match="temperature is"):
        spec(model, temperature=temperature)


@pytest.mark.parametrize("top_k", [0, -1])
def test_SP05_top_k_is_off_where_it_is_left_out_and_where_the_client_says_0_or_minus_1(
    model: ServedModel, top_k: int
) -> None:
    assert spec(model, top_k=top_k).sampling.top_k == sampling(model).sampling.top_k == 0


@pytest.mark.parametrize(
    ("bias", "sentence"),
    [
        ([(900, 5.0)], "token id 900 is outside the vocabulary of 900 tokens"),
        ([(2**32 - 1, 5.0)], "token id 4294967295 is outside"),
        ([(2**31, 5.0)], "token id 2147483648 is outside"),
        ([(1, NAN)], "of token 1 is nan"),
        ([(1, INF)], "of token 1 is inf"),
        ([(1, -INF)], "of token 1 is -inf"),
        ([(1, 100.5)], "it must lie in"),
        ([(1, -101)], "it must lie in"),
        ([(1, 1), (1, 2)], "names a token twice"),
        ([(i, 1) for i in range(1025)], "1025 entries; at most 1024"),
        ([(i % 900, 1) for i in range(100_000)], "100000 entries; at most 1024"),
    ],
)
def test_SP06_a_logit_bias_out_of_the_vocabulary_or_range_is_refused_before_the_scheduler(
    model: ServedModel, bias: list[tuple[int, float]], sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        sampling(model, logit_bias=[pb.LogitBias(token_id=token, bias=value) for token, value in bias])


@pytest.mark.parametrize("bias", [{-1: 5}, {2**32: 5}])
def test_SP06_nor_does_the_client_send_an_id_that_no_message_can_carry(
    model: ServedModel, bias: dict[int, float]
) -> None:
    with pytest.raises(ValueError, match="wrong type"):
        spec(model, logit_bias=bias)


def test_a_logit_bias_reaches_the_worker_as_it_is(model: ServedModel) -> None:
    found = spec(model, logit_bias={7: -100, 899: 2.5}).sampling.biases
    assert (found.tokens, found.values, found.until, found.contexts) == ((7, 899), (-100, 2.5), (ALWAYS,) * 2, (0, 0))


@pytest.mark.parametrize("prompt", [pb.Prompt(), pb.Prompt(text=""), pb.Prompt(token_ids=pb.TokenIds())])
def test_SP08_an_empty_prompt_is_refused(model: ServedModel, prompt: pb.Prompt) -> None:
    with pytest.raises(InvalidRequest, match="the prompt is empty"):
        parse_prompt(model, prompt)


@pytest.mark.parametrize("penalty", [0, -1, 1e-30, 1e30, NAN, INF, -INF])
def test_SP09_a_repetition_penalty_that_makes_infinities_is_refused(model: ServedModel, penalty: float) -> None:
    with pytest.raises(InvalidRequest, match="repetition_penalty is"):
        spec(model, repetition_penalty=penalty)


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
def test_SP12_more_log_probabilities_than_the_limit_are_refused(model: ServedModel, name: str) -> None:
    for count in (0, 1, 20):
        assert getattr(spec(model, **{name: count}), name) == count
    for count in (21, model.vocab_size + 1, 2**31 - 1, 2**32 - 1):
        with pytest.raises(InvalidRequest, match=rf"{name} is {count}; it must lie between 0 and 20"):
            spec(model, **{name: count})
    with pytest.raises(ValueError, match="must be from 0"):
        spec(model, **{name: -1})
    assert getattr(spec(model), name) is None


@pytest.mark.parametrize("ids", [[900], [2**31], [2**32 - 1], [0] * 5000, []])
def test_SP17_a_prompt_of_ids_that_are_no_tokens_never_reaches_a_worker(model: ServedModel, ids: list[int]) -> None:
    with pytest.raises(InvalidRequest):
        parse_prompt(model, pb.Prompt(token_ids=pb.TokenIds(ids=ids)))


EDGES = (-(2**31), -1, 0, 1, 2**31 - 1, 2**32 - 1, 2**64 - 1)


def test_SP18_every_whole_number_of_a_request_is_accepted_or_refused_at_any_edge(model: ServedModel) -> None:
    """Those of the schema; a number that a field cannot carry is the sender's own error."""
    tried = refused = 0
    for part in (pb.SamplingOptions, pb.StoppingOptions, pb.OutputOptions, pb.SchedulingOptions):
        group = next(f.name for f in pb.GenerationOptions.DESCRIPTOR.fields if f.message_type is part.DESCRIPTOR)
        for field in part.DESCRIPTOR.fields:
            if field.cpp_type not in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
                continue
            for edge in EDGES:
                try:
                    given = part(**{field.name: [edge] if field.is_repeated else edge})  # type: ignore[arg-type]
                except ValueError:
                    continue
                tried += 1
                try:
                    parse(model, [5, 6], pb.GenerationOptions(**{group: given}), "", ARRIVAL)  # type: ignore[arg-type]
                except InvalidRequest as error:
                    assert field.name in str(error) or "stop token" in str(error)  # noqa: PT017
                    refused += 1
    assert tried > 40
    assert refused > 10


def test_no_sampling_parameter_of_the_client_is_ignored(model: ServedModel) -> None:
    """Each changes what the core and the front are told."""
    other: dict[str, object] = {
        "n": 2,
        "temperature": 0.5,
        "top_p": 0.5,
        "top_k": 5,
        "min_p": 0.25,
        "repetition_penalty": 1.5,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "seed": 5,
        "max_tokens": 5,
        "min_tokens": 2,
        "stop": "x",
        "stop_token_ids": [7],
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "logprobs": 3,
        "prompt_logprobs": 3,
        "skip_special_tokens": False,
        "logit_bias": {7: 1.0},
        "bad_words": ["y"],
        "json_schema": '{"type": "object"}',
        "regex": "a+",
        "grammar": 'start: "a"',
        "choice": ["a", "b"],
    }
    assert other.keys() == get_type_hints(SamplingParams).keys()
    plain = parse(model, [5, 6], SamplingParams().as_proto(), "", ARRIVAL)
    for name, value in other.items():
        changed = SamplingParams(**{name: value})  # type: ignore[arg-type]
        assert parse(model, [5, 6], changed.as_proto(), "", ARRIVAL) != plain, name


def test_ST08_ST09_min_tokens_keeps_back_every_token_that_ends_the_answer_and_no_other(model: ServedModel) -> None:
    found = spec(model, min_tokens=5, stop_token_ids=[9, 8]).sampling.biases
    assert set(found.tokens) == {8, 9} | model.end_token_ids
    assert set(found.until) == {5}
    assert set(found.values) == {-INF}
    assert spec(model, min_tokens=5, ignore_eos=True).sampling.biases == NO_BIASES


def test_a_bad_word_is_forbidden_as_the_tokens_it_is_made_of_alone_and_after_a_space(model: ServedModel) -> None:
    encode = model.vocabulary.encode_word
    found = spec(model, bad_words=["this", " qz"]).sampling.biases
    last = [place for place, value in enumerate(found.values) if value == -INF]
    spelled = [found.tokens[place - found.contexts[place] : place + 1] for place in last]
    assert spelled == [tuple(encode(text)) for text in ("this", " this", " qz")]
    assert all(context == -1 for place, context in enumerate(found.contexts) if place not in last)
    assert len(encode(" this")) == 1, "a word of one token, after a space"


def test_SP14_a_prompt_of_ids_beyond_the_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "padded", vocab=300)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 320}))
    model = load_model(folder)
    assert parse_prompt(model, pb.Prompt(token_ids=pb.TokenIds(ids=[299]))) == [299]
    with pytest.raises(InvalidRequest, match="token id 300 is outside the vocabulary of 300 tokens"):
        parse_prompt(model, pb.Prompt(token_ids=pb.TokenIds(ids=[300])))
