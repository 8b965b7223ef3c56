"""Text to tokens and back. No torch."""

import re
from collections.abc import Sequence
from functools import cached_property

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel

from octavo_scheduler.template import ChatTemplate

_MARK = "\ue000{}\ue001"
_MARKS = re.compile("\ue000(\\d+)\ue001")

REPLACEMENT = "\ufffd"
MOST_HELD = 8
"""Tokens. A character has at most four bytes, so that four tokens make one: more that show nothing are no text."""


class Vocabulary:
    """A model's tokenizer. Control tokens are recognised in prompts and templates, never in what a chat user wrote.

    Any thread may encode.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        control = {i: token.content for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self.control_ids = frozenset(control)
        self._control = re.compile("|".join(map(re.escape, [*control.values(), "\ue000", "\ue001"])))
        self.longest_token = _longest_token(tokenizer)
        """Bytes: a text of more than n times as many has more than n tokens."""

    def encode(self, text: str) -> list[int]:
        """A prompt's tokens, with what the model puts in front of every text."""
        return _encode(self.tokenizer, text)

    def encode_chat(self, template: ChatTemplate, messages: Sequence[tuple[str, str]]) -> list[int]:
        """A chat's tokens. Control tokens written in a message stay text: they pass the template under a mark."""
        literals: list[str] = []

        def mark(match: re.Match[str]) -> str:
            literals.append(match[0])
            return _MARK.format(len(literals) - 1)

        text = template.render([(role, self._control.sub(mark, content)) for role, content in messages])
        ids: list[int] = []
        for place, piece in enumerate(_MARKS.split(text)):
            is_literal = place % 2 == 1
            tokenizer, text = (self._literal, literals[int(piece)]) if is_literal else (self.tokenizer, piece)
            ids += _encode(tokenizer, text, add_special_tokens=False)
        return ids

    @cached_property
    def _literal(self) -> Tokenizer:
        """Takes control tokens for text. One of its own, made when it is needed first: threads must not change the other."""
        tokenizer = Tokenizer.from_str(self.tokenizer.to_str())
        tokenizer.encode_special_tokens = True
        return tokenizer

    def num_literals(self, text: str) -> int:
        """How many control tokens a chat user wrote out in `text`."""
        return sum(1 for _ in self._control.finditer(text))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))


def _encode(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool = True) -> list[int]:
    """As a batch of one: that way, and only that way, other threads run meanwhile."""
    (encoding,) = tokenizer.encode_batch([text], add_special_tokens=add_special_tokens)
    return list(encoding.ids)


def _longest_token(tokenizer: Tokenizer) -> int:
    """In bytes. A byte-level vocabulary writes each byte as one character, except in added tokens."""
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    is_byte_level = isinstance(tokenizer.decoder, ByteLevel)
    tokens = tokenizer.get_vocab()
    return max(len(token if is_byte_level and token not in added else token.encode()) for token in tokens)


class Detokenizer:
    """One answer's tokens to text, as they come. Bytes of an incomplete character are held back, but never many.

    A token's text may depend on the one before it, so tokens are decoded behind those that were shown last.
    """

    def __init__(self, vocabulary: Vocabulary, *, skip_special_tokens: bool = True) -> None:
        self._vocabulary = vocabulary
        self._skip = skip_special_tokens
        self._shown: list[int] = []
        self._shown_length = 0
        self._held: list[int] = []

    def push(self, token: int) -> str:
        if self._skip and token in self._vocabulary.control_ids:
            return ""
        self._held.append(token)
        text = self._decode(self._shown + self._held)[self._shown_length :]
        if text and not text.endswith(REPLACEMENT):
            self._shown, self._held = self._held, []
            self._shown_length = len(self._decode(self._shown))
            return text
        return self._let_go(self._boundary()) if len(self._held) >= MOST_HELD else ""

    def flush(self) -> str:
        """What the answer's end leaves: an incomplete character becomes U+FFFD."""
        return self._let_go(len(self._held))

    def _let_go(self, count: int) -> str:
        gone, self._held = self._held[:count], self._held[count:]
        return self._decode(gone)

    def _boundary(self) -> int:
        """How many held tokens to let go. The last three may begin a character, and none may be cut in two."""
        whole, held = self._decode(self._held), self._held
        latest = len(held) - 3
        counts = range(latest, latest - 4, -1)
        return next((n for n in counts if self._decode(held[:n]) + self._decode(held[n:]) == whole), latest)

    def _decode(self, ids: Sequence[int]) -> str:
        return self._vocabulary.decode(ids, skip_special_tokens=self._skip)
