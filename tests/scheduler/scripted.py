"""A worker's tokens, written down, through the front's own code; vocabularies of exactly these tokens."""

from collections.abc import Sequence
from typing import Any

from octavo_scheduler.answer import Answer, End, Event, Piece
from octavo_scheduler.core.events import Committed, Finished, Started
from octavo_scheduler.core.request import FinishReason, RequestSpec
from octavo_scheduler.model import ServedModel
from octavo_scheduler.requests import Parsed
from octavo_scheduler.tokens import Vocabulary
from tokenizers import AddedToken, Tokenizer, decoders, models

from tests.streaming.vocabularies import byte_letters

END = "<end>"


def of_texts(*texts: str) -> ServedModel:
    """A token for each text, which it writes as it stands; the last one is a control token that ends answers."""
    tokens = [*texts, END]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=texts[0]))
    tokenizer.decoder = decoders.Fuse()
    return _served(tokenizer, len(tokens))


def of_bytes(*contents: bytes) -> tuple[ServedModel, list[int]]:
    """A token for each of these bytes, which may be parts of characters, and the ids of them all in this order."""
    letters = {byte: letter for letter, byte in byte_letters()}
    tokens = ["".join(letters[byte] for byte in content) for content in contents]
    known = {token: i for i, token in enumerate(dict.fromkeys([*tokens, END]))}
    tokenizer = Tokenizer(models.BPE(known, []))
    tokenizer.decoder = decoders.ByteLevel()
    return _served(tokenizer, len(known)), [known[token] for token in tokens]


def _served(tokenizer: Tokenizer, vocab_size: int) -> ServedModel:
    tokenizer.add_special_tokens([AddedToken(END, normalized=False)])
    return ServedModel("scripted", Vocabulary(tokenizer), vocab_size, 64, frozenset({vocab_size - 1}), None, {})


def parsed(model: ServedModel, prompt: Sequence[int] = (), stops: Sequence[str] = (), **changes: Any) -> Parsed:
    spec = RequestSpec(
        id="r",
        prompt=tuple(prompt),
        n=changes.pop("n", 1),
        stop_token_ids=model.end_token_ids | changes.pop("stop_token_ids", frozenset()),
        max_tokens=changes.pop("max_tokens", None),
    )
    settings = {"include_stop": False, "skip_special_tokens": True, "stream_interval": 1, **changes}
    return Parsed(spec=spec, label="r", stops=tuple(stops), **settings)


def streamed(
    model: ServedModel,
    request: Parsed,
    ids: Sequence[int],
    at_once: int = 1,
    reason: FinishReason = FinishReason.LENGTH,
) -> list[Event]:
    """The events of an answer whose tokens come `at_once`; as many come after a stop as were on their way."""
    answer = Answer(model, request)
    events, num_tokens = answer.take([Started("r", 0.0, 0)]), len(ids)
    for first in range(0, len(ids), at_once):
        portion = ids[first : first + at_once]
        events += answer.take([Committed("r", 0, first + nth, token) for nth, token in enumerate(portion)])
        for cut in answer.take_cuts():
            num_tokens = cut.at
    last = ids[-1] if reason is FinishReason.STOP else None
    return [*events, *answer.take([Finished("r", 0, reason, num_tokens, 0, last)])]


def texts(events: Sequence[Event]) -> list[str]:
    """Of each message."""
    return [event.text for event in events if isinstance(event, Piece)]


def tokens(events: Sequence[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Piece) for token in event.tokens]


def end(events: Sequence[Event]) -> End:
    (found,) = (event for event in events if isinstance(event, End))
    return found
