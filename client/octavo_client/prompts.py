"""The shapes in which prompts and conversations may be given, and their protobuf messages."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from octavo.v1 import inference_pb2 as pb

from octavo_client.errors import InvalidRequest

Prompt: TypeAlias = str | Sequence[int] | Mapping[str, str | Sequence[int]]
"""Text, token ids, {"prompt": text} or {"prompt_token_ids": ids}."""

Message: TypeAlias = Mapping[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}"""

SHAPES = 'a prompt is text, a list of token ids, {"prompt": text} or {"prompt_token_ids": ids}'
KEYS = ("prompt", "prompt_token_ids")


def as_proto(prompt: Prompt) -> pb.Prompt:
    """Returns the message for one prompt. Raises InvalidRequest when it has none of the known shapes."""
    content = _content(prompt)
    if isinstance(content, str):
        return pb.Prompt(text=checked_text(content))
    try:
        return pb.Prompt(token_ids=pb.TokenIds(ids=content))
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"Token ids must be whole numbers from 0 to 2**32 - 1; {SHAPES}.") from error


def text_of(prompt: Prompt) -> str | None:
    """Returns the prompt's text, or None when it was given as token ids."""
    content = _content(prompt)
    return content if isinstance(content, str) else None


def token_ids_of(prompt: Prompt) -> list[int] | None:
    """Returns the prompt's token ids, or None when it was given as text."""
    content = _content(prompt)
    return None if isinstance(content, str) else list(content)


def as_list(prompts: Prompt | Iterable[Prompt]) -> list[Prompt]:
    """Returns one prompt or many as a list. A flat list of token ids is one prompt."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    many = list(prompts)
    if many and all(isinstance(entry, int) for entry in many):
        return [cast(list[int], many)]
    return cast(list[Prompt], many)


def messages_as_proto(messages: Iterable[Message]) -> list[pb.ChatMessage]:
    """Returns the messages of one conversation. Raises InvalidRequest for a message of another shape."""
    try:
        return [
            pb.ChatMessage(role=checked_text(message["role"]), content=checked_text(message["content"]))
            for message in messages
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidRequest('A chat message is {"role": text, "content": text}.') from error


def tokenize_request(model: str, content: str | Iterable[Message]) -> pb.TokenizeRequest:
    """Returns the message that asks for the tokens of a text or of a conversation."""
    if isinstance(content, str):
        return pb.TokenizeRequest(model=model, text=checked_text(content))
    return pb.TokenizeRequest(model=model, chat=pb.Conversation(messages=messages_as_proto(content)))


def checked_text(text: str) -> str:
    """Returns the text. Raises InvalidRequest for half a surrogate pair, which no message can carry."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"This text has half of a surrogate pair at {error.start}, U+{ord(text[error.start]):04X}: it is no Unicode."
        ) from error
    return text


def _content(prompt: Prompt) -> str | Sequence[int]:
    if isinstance(prompt, Mapping):
        if len(prompt) != 1 or next(iter(prompt)) not in KEYS:
            raise InvalidRequest(f"This prompt has the keys {sorted(prompt)}; {SHAPES}.")
        return next(iter(prompt.values()))
    if isinstance(prompt, str | Sequence):
        return prompt
    raise InvalidRequest(f"This prompt is of type {type(prompt).__name__}; {SHAPES}.")
