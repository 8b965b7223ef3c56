from functools import partial
from typing import Any

import pytest
from octavo_client import prompts
from octavo_client.errors import InvalidRequest
from octavo_client.params import SamplingParams


@pytest.mark.parametrize("prompt", ["你好", {"prompt": "你好"}])
def test_text_is_sent_as_text(prompt: prompts.Prompt) -> None:
    assert prompts.as_proto(prompt).text == "你好"
    assert (prompts.text_of(prompt), prompts.token_ids_of(prompt)) == ("你好", None)


@pytest.mark.parametrize("prompt", [[1, 2, 3], (1, 2, 3), {"prompt_token_ids": [1, 2, 3]}])
def test_token_ids_are_sent_as_they_are(prompt: prompts.Prompt) -> None:
    assert list(prompts.as_proto(prompt).token_ids.ids) == [1, 2, 3]
    assert (prompts.text_of(prompt), prompts.token_ids_of(prompt)) == (None, [1, 2, 3])


def test_an_empty_prompt_is_sent_for_the_server_to_refuse() -> None:
    assert prompts.as_proto("").WhichOneof("content") == "text"
    assert prompts.as_proto([]).WhichOneof("content") == "token_ids"


@pytest.mark.parametrize("prompt", [7, None, {"text": "a"}, {"prompt": "a", "prompt_token_ids": [1]}, [1, "a"], [-1]])
def test_a_prompt_of_another_shape_is_refused_with_the_shapes_there_are(prompt: Any) -> None:
    with pytest.raises(InvalidRequest, match=r'text, a list of token ids, \{"prompt": text\}'):
        prompts.as_proto(prompt)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("one", ["one"]),
        (["one", "two"], ["one", "two"]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        ([1, 2], [[1, 2]]),
        ({"prompt_token_ids": [1]}, [{"prompt_token_ids": [1]}]),
        ((text for text in ("one", "two")), ["one", "two"]),
        ([], []),
    ],
)
def test_one_prompt_or_many_become_a_list(given: Any, expected: list[prompts.Prompt]) -> None:
    assert prompts.as_list(given) == expected


def test_token_ids_mixed_with_prompts_are_refused_and_not_dropped() -> None:
    mixed: list[Any] = ["one", 2]
    with pytest.raises(InvalidRequest):
        [prompts.as_proto(prompt) for prompt in prompts.as_list(mixed)]


@pytest.mark.parametrize("message", [{"role": "user"}, {"role": "user", "content": 7}, "hello"])
def test_a_chat_message_of_another_shape_is_refused(message: Any) -> None:
    with pytest.raises(InvalidRequest, match='"content"'):
        prompts.messages_as_proto([message])


def test_TT01_half_a_surrogate_pair_is_refused_with_its_place_before_anything_is_sent() -> None:
    for text in ("ab\ud800c", "ab\udbc0", "ab\udc00\ud800"):
        for refused in (
            partial(prompts.as_proto, text),
            partial(prompts.messages_as_proto, [{"role": "user", "content": text}]),
        ):
            with pytest.raises(InvalidRequest, match=rf"half of a surrogate pair at 2, U\+{ord(text[2]):04X}"):
                refused()
        with pytest.raises(InvalidRequest, match=r"in position 2.*surrogates not allowed"):
            SamplingParams(stop=[text]).as_proto()
