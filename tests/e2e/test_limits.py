"""Prompts and answers at the edge of the context, through a real worker: refused with the numbers, or ended just there."""

from collections.abc import Iterator

import pytest
from octavo_client import Client, SamplingParams
from octavo_client.errors import InvalidRequest

from tests.doubles.tiny_model import make_tiny_model
from tests.processes import serving

CONTEXT = 128
EXACT = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    model = make_tiny_model(tmp_path_factory.mktemp("tiny") / "m", max_context=CONTEXT)
    with serving(model, worker=("--device=cpu", "--pages=64")) as address, Client(address) as client:
        yield client


def params(max_tokens: int | None) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1, 10_000])
def test_LC01_a_prompt_that_fills_the_context_is_refused_at_once_and_the_next_is_served(
    client: Client, length: int
) -> None:
    with pytest.raises(InvalidRequest, match=rf"the prompt has {length} tokens; the context of m is 128 tokens"):
        client.generate([5] * length, EXACT)
    assert len(client.generate([5] * (CONTEXT - 1), EXACT).outputs[0].token_ids) == 1
    assert client.status().counters.accepted == client.status().counters.ended


def test_LC02_a_chat_is_measured_with_what_the_template_adds(client: Client) -> None:
    """Each zero is one token."""

    def ask(length: int) -> int:
        return client.chat([{"role": "user", "content": "0" * length}], EXACT).usage.prompt_tokens

    longest = CONTEXT - 1 - ask(1) + 1
    assert longest < CONTEXT - 1, "the template takes its share"
    assert ask(longest) == CONTEXT - 1
    with pytest.raises(InvalidRequest, match="the prompt has 128 tokens; the context of m is 128 tokens"):
        ask(longest + 1)


@pytest.mark.parametrize(("prompt", "answer"), [(100, 28), (127, 1)])
def test_LC04_prompt_and_answer_may_fill_the_context_exactly(client: Client, prompt: int, answer: int) -> None:
    output = client.generate([5] * prompt, params(answer))
    assert len(output.outputs[0].token_ids) == answer
    assert output.outputs[0].finish_reason == "length"


def test_LC04_one_token_more_is_refused_with_prompt_answer_and_limit(client: Client) -> None:
    sentence = "max_tokens is 29; after 100 prompt tokens the context of 128 has room for 28"
    with pytest.raises(InvalidRequest, match=sentence):
        client.generate([5] * 100, params(29))
    with pytest.raises(InvalidRequest, match="the prompt has 128 tokens; the context of m is 128 tokens"):
        client.generate([5] * 128, params(1))


def test_LC05_an_answer_without_a_limit_ends_where_the_context_does(client: Client) -> None:
    output = client.generate([5] * 124, params(None))
    assert output.usage.prompt_tokens + output.usage.completion_tokens == CONTEXT
    assert output.outputs[0].finish_reason == "length"
    rest = client.generate([5] * 60, params(None))
    assert rest.usage.completion_tokens == CONTEXT - 60
