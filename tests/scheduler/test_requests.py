import dataclasses
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from octavo.v1 import inference_pb2 as pb
from octavo_scheduler.errors import InvalidRequest, ModelNotFound, StartError
from octavo_scheduler.model import ServedModel, load_model
from octavo_scheduler.prompts import parse_messages, parse_prompt
from octavo_scheduler.requests import Arrival, Parsed, check_model, parse
from octavo_scheduler.tokens import Vocabulary

ARRIVAL = Arrival(id="id", seed=77, now=0.5, deadline=1.0)


def options(**fields: object) -> pb.GenerationOptions:
    return pb.GenerationOptions(**fields)  # type: ignore[arg-type]


def sampling(**fields: object) -> pb.GenerationOptions:
    return options(sampling=pb.SamplingOptions(**fields))  # type: ignore[arg-type]


def stopping(**fields: object) -> pb.GenerationOptions:
    return options(stopping=pb.StoppingOptions(**fields))  # type: ignore[arg-type]


def constrained(*, stopping: pb.StoppingOptions | None = None, **kind: object) -> pb.GenerationOptions:
    return options(constraint=pb.OutputConstraint(**kind), stopping=stopping)  # type: ignore[arg-type]


def parsed(model: ServedModel, given: pb.GenerationOptions) -> Parsed:
    return parse(model, [5, 6], given, "", ARRIVAL)


def test_left_out_options_are_the_defaults(model: ServedModel) -> None:
    result = parsed(model, options())
    assert result.spec.max_tokens is None
    assert result.spec.sampling.seed == 77
    assert result.spec.stop_token_ids == model.end_token_ids
    assert result.label == "id"
    assert result.skip_special_tokens


def test_a_queue_deadline_counts_from_the_arrival(model: ServedModel) -> None:
    assert parsed(model, options()).spec.queue_deadline is None
    given = options(scheduling=pb.SchedulingOptions(queue_seconds=2.0))
    assert parsed(model, given).spec.queue_deadline == ARRIVAL.now + 2.0


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
        (sampling(n=17), "n is 17; it must lie between 1 and 16"),
        (sampling(n=2**32 - 1), "n is 4294967295; it must lie between 1 and 16"),
        (sampling(bad_words=["x" * 257]), "each of bad_words is no blank, and has at most 256 bytes, not 257"),
        (sampling(bad_words=["x"] * 129), "bad_words has 129 words; at most 128 can be"),
        (sampling(bad_words=[" "]), "each of bad_words is no blank"),
        (sampling(bad_words=[chr(97 + i % 26) * 100 + chr(97 + i // 26) for i in range(20)]), "at most 2048"),
        (stopping(min_tokens=9, max_tokens=8), "min_tokens is 9, more than max_tokens, which is 8"),
        (constrained(choice=pb.Choice()), r"constraint\.choice has 1 to 1024 texts"),
        (constrained(choice=pb.Choice(values=["a"] * 1025)), r"constraint\.choice has 1 to 1024 texts"),
        (constrained(choice=pb.Choice(values=["a", ""])), r"constraint\.choice has an empty text"),
        (constrained(regex=""), r"constraint\.regex has an empty text"),
        (constrained(grammar="é" * 40_000), r"constraint\.grammar has 80000 bytes; at most 65536 are compiled"),
        (constrained(regex="a", stopping=pb.StoppingOptions(ignore_eos=True)), "ignore_eos is not for it"),
        (options(scheduling=pb.SchedulingOptions(tenant="t" * 200)), "tenant is too long"),
        (options(scheduling=pb.SchedulingOptions(cache_salt="s" * 129)), "cache_salt is too long"),
        (options(scheduling=pb.SchedulingOptions(queue_seconds=0.0)), "queue_seconds is 0.0; it must lie in"),
        (options(scheduling=pb.SchedulingOptions(queue_seconds=math.nan)), "queue_seconds is nan"),
        (options(scheduling=pb.SchedulingOptions(queue_seconds=3601.0)), "queue_seconds is 3601.0"),
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


def test_a_repetition_penalty_may_lie_at_the_ends_of_the_range_that_its_refusal_names(model: ServedModel) -> None:
    with pytest.raises(InvalidRequest, match=r"must lie in \[0\.0078125, 128\.0\]"):
        parsed(model, sampling(repetition_penalty=0.0))
    for end in (0.0078125, 128.0):
        assert parsed(model, sampling(repetition_penalty=end)).spec.sampling.repetition_penalty == end


@pytest.mark.parametrize(("asked", "answers"), [(0, 1), (1, 1), (2, 2), (16, 16)])
def test_a_request_has_one_answer_or_as_many_as_it_asks_for(model: ServedModel, asked: int, answers: int) -> None:
    assert parsed(model, options()).spec.n == 1
    assert parsed(model, sampling(n=asked)).spec.n == answers


def test_a_constraint_is_handed_on_as_it_is_and_a_choice_as_a_regular_expression(model: ServedModel) -> None:
    assert parsed(model, options()).constraint is None
    assert not parsed(model, options()).spec.is_constrained
    given = parsed(model, constrained(json_schema="{}"))
    assert given.spec.is_constrained
    assert given.constraint == ("json_schema", "{}")
    kind, text = parsed(model, constrained(choice=pb.Choice(values=["a.", "[é"]))).constraint or ("", "")
    assert kind == "regex"
    assert [letter for letter in ("a.", "[é", "a", "") if re.fullmatch(_in_python(text), letter)] == ["a.", "[é"]


def _in_python(regex: str) -> str:
    """Python writes \\x{e9} as \\u00e9."""
    return re.sub(r"\\x\{(\w+)\}", lambda match: f"\\u{int(match[1], 16):04x}", regex)


def test_a_model_without_an_end_token_has_no_constrained_answers(model: ServedModel) -> None:
    with pytest.raises(InvalidRequest, match="has no end token"):
        parsed(replace(model, end_token_ids=frozenset()), constrained(regex="a"))


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


@pytest.fixture
def small(model: ServedModel, monkeypatch: pytest.MonkeyPatch) -> ServedModel:
    """A context of ten tokens, the longest of which has 13 bytes, and a tokenizer that must not be used."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("this must not be tokenised")

    monkeypatch.setattr(Vocabulary, "encode", refuse)
    monkeypatch.setattr(Vocabulary, "encode_chat", refuse)
    return dataclasses.replace(model, max_context=10)


def test_RP06_a_limit_that_the_operator_sets_is_the_one_that_requests_are_held_to(model_folder: Path) -> None:
    served = load_model(model_folder, max_context=100)
    assert served.max_context == 100
    assert len(parse_prompt(served, pb.Prompt(token_ids=pb.TokenIds(ids=[1] * 99)))) == 99
    with pytest.raises(InvalidRequest, match="the prompt has 100 tokens; the context of tiny is 100 tokens"):
        parse_prompt(served, pb.Prompt(token_ids=pb.TokenIds(ids=[1] * 100)))


@pytest.mark.parametrize("tokens", [-1, 0, 1, 4097])
def test_a_limit_that_the_model_cannot_keep_is_refused_at_the_start(tokens: int, model_folder: Path) -> None:
    with pytest.raises(StartError, match=f"--max-context lies between 2 and the model's 4096 tokens, not at {tokens}"):
        load_model(model_folder, max_context=tokens)


@pytest.mark.parametrize("text", ["a" * 131, "\u4f60" * 44])
def test_text_of_more_bytes_than_the_context_can_hold_is_refused_before_it_is_tokenised(
    small: ServedModel, text: str
) -> None:
    sentence = f"has {len(text.encode())} bytes; the context of tiny has 10 tokens of at most 13 bytes each"
    with pytest.raises(InvalidRequest, match=f"the prompt {sentence}"):
        parse_prompt(small, pb.Prompt(text=text))
    half, rest = text[:20], text[20:]
    with pytest.raises(InvalidRequest, match=f"the chat {sentence}"):
        parse_messages(small, [pb.ChatMessage(role="user", content=half), pb.ChatMessage(role="user", content=rest)])


def test_text_that_may_fit_is_tokenised(model: ServedModel) -> None:
    barely = dataclasses.replace(model, max_context=10)
    assert len(parse_prompt(barely, pb.Prompt(text="<|endoftext|>" * 9))) == 9
    with pytest.raises(InvalidRequest, match="the prompt has 10 tokens"):
        parse_prompt(barely, pb.Prompt(text="<|endoftext|>" * 10))


def test_a_chat_full_of_control_tokens_is_refused_before_it_is_tokenised(
    model: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo_scheduler.limits.MAX_CHAT_LITERALS", 3)
    turns = [pb.ChatMessage(role="user", content="\ue000<|im_end|>"), pb.ChatMessage(role="user", content="<|im_end|>")]
    assert parse_messages(model, turns)
    with pytest.raises(InvalidRequest, match="the chat has 6 control tokens written out; at most 3"):
        parse_messages(model, [*turns, *turns])


def test_names_are_quoted_in_part(model: ServedModel) -> None:
    with pytest.raises(ModelNotFound, match=f"no model '{'m' * 64}' is served"):
        check_model(model, "m" * 100_000)
    with pytest.raises(InvalidRequest, match=f"not '{'r' * 64}'$"):
        parse_messages(model, [pb.ChatMessage(role="r" * 100_000, content="x")])


def test_another_model_is_not_found(model: ServedModel) -> None:
    check_model(model, "")
    check_model(model, "tiny")
    with pytest.raises(ModelNotFound, match="no model 'other' is served here; there is 'tiny'"):
        check_model(model, "other")
