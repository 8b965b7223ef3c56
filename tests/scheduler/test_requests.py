import math

import pytest
from octavo.v1 import inference_pb2 as pb
from octavo_scheduler.errors import InvalidRequest, ModelNotFound
from octavo_scheduler.model import ServedModel
from octavo_scheduler.requests import Arrival, Parsed, check_model, parse, parse_messages, parse_prompt

ARRIVAL = Arrival(id="id", seed=77, deadline=1.0)


def options(**fields: object) -> pb.GenerationOptions:
    return pb.GenerationOptions(**fields)  # type: ignore[arg-type]


def sampling(**fields: object) -> pb.GenerationOptions:
    return options(sampling=pb.SamplingOptions(**fields))  # type: ignore[arg-type]


def stopping(**fields: object) -> pb.GenerationOptions:
    return options(stopping=pb.StoppingOptions(**fields))  # type: ignore[arg-type]


def parsed(model: ServedModel, given: pb.GenerationOptions) -> Parsed:
    return parse(model, [5, 6], given, "", ARRIVAL)


def test_left_out_options_are_the_defaults(model: ServedModel) -> None:
    result = parsed(model, options())
    assert result.spec.max_tokens is None
    assert result.spec.sampling.seed == 77
    assert result.spec.stop_token_ids == model.end_token_ids
    assert result.label == "id"
    assert result.skip_special_tokens


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (sampling(temperature=math.nan), "temperature is nan"),
        (sampling(temperature=-0.5), "temperature is -0.5"),
        (sampling(temperature=math.inf), "temperature is inf"),
        (sampling(top_p=0.0), "top_p is 0"),
        (sampling(top_p=1.5), "top_p is 1.5"),
        (sampling(top_p=math.nan), "top_p is nan"),
        (sampling(min_p=-0.1), "min_p is -0.1"),
        (sampling(top_k=-1), "top_k is -1"),
        (sampling(repetition_penalty=0.0), "repetition_penalty is 0.0"),
        (sampling(presence_penalty=-3.0), "presence_penalty is -3.0"),
        (sampling(frequency_penalty=math.nan), "frequency_penalty is nan"),
        (stopping(max_tokens=0), "max_tokens is 0; it must be at least 1"),
        (stopping(max_tokens=2**32 - 1), "max_tokens is 4294967295"),
        (stopping(stop_token_ids=[900]), "stop token id 900 is outside the vocabulary of 900"),
        (stopping(stop=[""]), "a stop string has 1 to 256 bytes"),
        (stopping(stop=["x" * 257]), "a stop string has 1 to 256 bytes"),
        (stopping(stop=["x"] * 17), "more than 16 stop strings"),
        (sampling(n=2), "sampling.n above 1 is not supported"),
        (sampling(n=1_000_000), "sampling.n above 1 is not supported"),
        (sampling(bad_words=["x"]), "sampling.bad_words is not supported"),
        (stopping(min_tokens=1), "stopping.min_tokens is not supported"),
        (options(output=pb.OutputOptions(logprobs=0)), "output.logprobs is not supported"),
        (options(constraint=pb.OutputConstraint(regex="a")), "constraint is not supported"),
        (options(scheduling=pb.SchedulingOptions(tenant="t" * 200)), "tenant is too long"),
    ],
)
def test_what_is_out_of_range_or_not_supported_names_the_field(
    model: ServedModel, given: pb.GenerationOptions, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        parsed(model, given)


def test_edges_of_the_ranges_are_inside(model: ServedModel) -> None:
    edge = sampling(
        temperature=0.0, top_p=1.0, min_p=1.0, top_k=0, presence_penalty=2.0, frequency_penalty=-2.0, seed=0
    )
    assert parsed(model, edge).spec.sampling.seed == 0
    assert parsed(model, stopping(max_tokens=4094)).spec.max_tokens == 4094
    with pytest.raises(InvalidRequest, match="has room for 4094"):
        parsed(model, stopping(max_tokens=4095))


def test_ignore_eos_leaves_only_the_clients_own_stop_tokens(model: ServedModel) -> None:
    assert parsed(model, stopping(ignore_eos=True, stop_token_ids=[9])).spec.stop_token_ids == {9}


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        (pb.Prompt(), "the prompt is empty"),
        (pb.Prompt(text=""), "the prompt is empty"),
        (pb.Prompt(token_ids=pb.TokenIds()), "the prompt is empty"),
        (pb.Prompt(token_ids=pb.TokenIds(ids=[3, 900])), "token id 900 is outside the vocabulary of 900 tokens"),
        (pb.Prompt(token_ids=pb.TokenIds(ids=[1] * 4096)), "the prompt has 4096 tokens; the context of tiny is 4096"),
    ],
)
def test_a_prompt_must_have_tokens_of_the_vocabulary_within_the_context(
    model: ServedModel, prompt: pb.Prompt, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        parse_prompt(model, prompt)


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "a chat has 1 to 1024 messages"),
        ([pb.ChatMessage(role="robot", content="x")], "a message's role is system, user or assistant, not 'robot'"),
    ],
)
def test_messages_must_be_a_chat(model: ServedModel, messages: list[pb.ChatMessage], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        parse_messages(model, messages)


def test_another_model_is_not_found(model: ServedModel) -> None:
    check_model(model, "")
    check_model(model, "tiny")
    with pytest.raises(ModelNotFound, match="no model 'other' is served here; there is 'tiny'"):
        check_model(model, "other")
