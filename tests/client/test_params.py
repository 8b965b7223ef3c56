from dataclasses import fields
from typing import Any

import pytest
from octavo.v1 import inference_pb2 as pb
from octavo_client.errors import InvalidRequest
from octavo_client.params import SamplingParams

# Field, a value that is not its default, where the message has it, and what is read there.
FIELDS: list[tuple[str, Any, str, Any]] = [
    ("n", 3, "sampling.n", 3),
    ("temperature", 0.5, "sampling.temperature", 0.5),
    ("top_p", 0.25, "sampling.top_p", 0.25),
    ("top_k", 7, "sampling.top_k", 7),
    ("min_p", 0.125, "sampling.min_p", 0.125),
    ("repetition_penalty", 1.5, "sampling.repetition_penalty", 1.5),
    ("presence_penalty", -0.5, "sampling.presence_penalty", -0.5),
    ("frequency_penalty", 0.75, "sampling.frequency_penalty", 0.75),
    ("seed", 2**64 - 1, "sampling.seed", 2**64 - 1),
    ("logit_bias", {5: -1.5}, "sampling.logit_bias", [pb.LogitBias(token_id=5, bias=-1.5)]),
    ("bad_words", ["ugh"], "sampling.bad_words", ["ugh"]),
    ("max_tokens", 99, "stopping.max_tokens", 99),
    ("min_tokens", 4, "stopping.min_tokens", 4),
    ("stop", ["a", "b"], "stopping.stop", ["a", "b"]),
    ("stop_token_ids", [2, 3], "stopping.stop_token_ids", [2, 3]),
    ("ignore_eos", True, "stopping.ignore_eos", True),
    ("include_stop_str_in_output", True, "stopping.include_stop", True),
    ("logprobs", 5, "output.logprobs", 5),
    ("prompt_logprobs", 1, "output.prompt_logprobs", 1),
    ("skip_special_tokens", False, "output.skip_special_tokens", False),
    ("json_schema", {"const": "é"}, "constraint.json_schema", '{"const": "é"}'),
    ("regex", "a+", "constraint.regex", "a+"),
    ("grammar", 'start: "a"', "constraint.grammar", 'start: "a"'),
    ("choice", ["a", "b"], "constraint.choice.values", ["a", "b"]),
]


def read(message: Any, path: str) -> Any:
    for name in path.split("."):
        message = getattr(message, name)
    return message


@pytest.mark.parametrize(("name", "value", "path", "expected"), FIELDS)
def test_a_field_arrives_in_the_message_and_survives_the_wire(name: str, value: Any, path: str, expected: Any) -> None:
    options = SamplingParams(**{name: value}).as_proto()
    received = pb.GenerationOptions.FromString(options.SerializeToString())
    assert read(received, path) == expected
    assert read(SamplingParams().as_proto(), path) != expected


def test_the_table_above_has_every_field() -> None:
    assert {name for name, *_ in FIELDS} == {field.name for field in fields(SamplingParams)}


def test_none_is_not_sent_but_zero_is() -> None:
    unset = SamplingParams(temperature=None, max_tokens=None, seed=None).as_proto()
    assert not unset.sampling.HasField("temperature")
    assert not unset.stopping.HasField("max_tokens")
    assert not unset.sampling.HasField("seed")
    zero = SamplingParams(temperature=0, max_tokens=0, seed=0).as_proto()
    assert zero.sampling.HasField("temperature")
    assert zero.stopping.HasField("max_tokens")
    assert zero.sampling.HasField("seed")


def test_the_defaults_are_those_people_know() -> None:
    options = SamplingParams().as_proto()
    assert (options.stopping.max_tokens, options.sampling.temperature, options.sampling.top_p) == (16, 1.0, 1.0)


def test_one_stop_text_is_a_list_of_one_and_minus_one_means_no_top_k() -> None:
    options = SamplingParams(stop="END", top_k=-1).as_proto()
    assert list(options.stopping.stop) == ["END"]
    assert options.sampling.top_k == 0


@pytest.mark.parametrize(
    ("name", "value"), [("n", 0), ("max_tokens", -1), ("seed", 2**64), ("seed", -1), ("top_k", -2), ("logprobs", 2**32)]
)
def test_a_number_the_wire_cannot_carry_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=rf"^{name} must be from .* not {value}\.$"):
        SamplingParams(**{name: value})


def test_a_value_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="wrong type"):
        SamplingParams(temperature="hot").as_proto()  # type: ignore[arg-type]


def test_nan_is_left_to_the_server_to_refuse() -> None:
    assert SamplingParams(temperature=float("nan")).as_proto().sampling.temperature != 0


def test_a_schema_may_be_given_as_text() -> None:
    assert SamplingParams(json_schema='{"const":1}').as_proto().constraint.json_schema == '{"const":1}'
    assert not SamplingParams().as_proto().HasField("constraint")


def test_an_answer_has_one_constraint() -> None:
    with pytest.raises(InvalidRequest, match="An answer has one constraint; regex and choice are two"):
        SamplingParams(regex="a", choice=["a"])
