"""What a client wants continued, as checked token ids: of a text, of a chat, or its own."""

from collections.abc import Sequence

from octavo.v1 import inference_pb2

from octavo_scheduler import limits
from octavo_scheduler.errors import InvalidRequest, require
from octavo_scheduler.model import ServedModel


def parse_prompt(model: ServedModel, prompt: inference_pb2.Prompt) -> list[int]:
    """The prompt's token ids. Raises InvalidRequest for an empty prompt and for ids outside the vocabulary."""
    match prompt.WhichOneof("content"):
        case "text":
            ids = encode_text(model, prompt.text)
        case "token_ids":
            ids = list(prompt.token_ids.ids)
        case _:
            ids = []
    return check_prompt(model, ids)


def parse_messages(model: ServedModel, messages: Sequence[inference_pb2.ChatMessage]) -> list[int]:
    """The chat's token ids, through the model's template."""
    return check_prompt(model, encode_messages(model, messages))


def encode_text(model: ServedModel, text: str, field: str = "prompt.text") -> list[int]:
    """The text's token ids, which may be more than fit."""
    _check_size(model, "the prompt", len(text.encode()), field)
    return model.vocabulary.encode(text)


def encode_messages(
    model: ServedModel, messages: Sequence[inference_pb2.ChatMessage], field: str = "messages"
) -> list[int]:
    """The chat's token ids, which may be more than fit."""
    if model.template is None:
        raise InvalidRequest(f"the model {model.name} has no chat template; use Generate")
    most = limits.MAX_MESSAGES
    require(0 < len(messages) <= most, f"a chat has 1 to {most} messages", field, given=len(messages), most=most)
    for place, message in enumerate(messages):
        require(
            message.role in ("system", "user", "assistant"),
            f"a message's role is system, user or assistant, not {message.role[: limits.MAX_ECHO]!r}",
            f"{field}[{place}].role",
        )
    _check_size(model, "the chat", sum(len(message.content.encode()) for message in messages), field)
    num_literals = sum(model.vocabulary.num_literals(message.content) for message in messages)
    require(
        num_literals <= limits.MAX_CHAT_LITERALS,
        f"the chat has {num_literals} control tokens written out; at most {limits.MAX_CHAT_LITERALS} are taken as text",
        field,
        given=num_literals,
        most=limits.MAX_CHAT_LITERALS,
    )
    turns = [(message.role, message.content) for message in messages]
    return model.vocabulary.encode_chat(model.template, turns)


def _check_size(model: ServedModel, what: str, num_bytes: int, field: str) -> None:
    """Refuses text that cannot fit before any of it is tokenised, which takes long."""
    longest, most = model.vocabulary.longest_token, limits.MAX_PROMPT_BYTES
    require(
        num_bytes <= model.max_context * longest,
        f"{what} has {num_bytes} bytes; the context of {model.name} has {model.max_context} tokens of at most {longest} "
        "bytes each",
        field,
        given=num_bytes,
        most=model.max_context * longest,
    )
    require(num_bytes <= most, f"{what} has {num_bytes} bytes, more than {most}", field, given=num_bytes, most=most)


def check_prompt(model: ServedModel, ids: list[int]) -> list[int]:
    require(bool(ids), "the prompt is empty: it needs at least one token", "prompt")
    require(
        len(ids) < model.max_context,
        f"the prompt has {len(ids)} tokens; the context of {model.name} is {model.max_context} tokens, answer included",
        "prompt",
        given=len(ids),
        most=model.max_context - 1,
    )
    check_tokens(model, ids, "prompt.token_ids")
    return ids


def check_context(model: ServedModel, ids: Sequence[int]) -> None:
    """Raises InvalidRequest for more tokens than a prompt and its answer may have, and for an id that is none."""
    require(
        len(ids) <= model.max_context,
        f"there are {len(ids)} tokens; the context of {model.name} has {model.max_context}",
        "token_ids",
        given=len(ids),
        most=model.max_context,
    )
    check_tokens(model, ids, "token_ids")


def check_tokens(model: ServedModel, ids: Sequence[int], field: str, what: str = "token id") -> None:
    """Raises InvalidRequest for an id outside the vocabulary."""
    size = model.vocab_size
    outside = next((token for token in ids if token >= size), 0)
    sentence = f"{what} {outside} is outside the vocabulary of {size} tokens"
    require(outside < size, sentence, field, given=outside, most=size - 1)
