"""Text to tokens and back. No torch."""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel

from octavo_scheduler.errors import InvalidRequest
from octavo_scheduler.template import ChatTemplate

_MARK = "\ue000{}\ue001"
_MARKS = re.compile("\ue000(\\d+)\ue001")

REPLACEMENT = "\ufffd"
MOST_BYTES = 3
"""Of a character that is incomplete, so no more tokens than that begin one."""
MOST_HELD, MOST_LOOKED_AT = 8, 16
"""Tokens that are decoded again with the next one, and of a prompt."""


class Vocabulary:
    """A model's tokenizer. Control tokens are recognised in prompts and templates, never in what a chat user wrote.

    Any thread may encode.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        control = {i: token.content for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self.control_ids = frozenset(control)
        self._control = re.compile("|".join(map(re.escape, [*control.values(), "\ue000", "\ue001"])))
        self.num_tokens = 1 + max(tokenizer.get_vocab().values(), default=-1)
        self.longest_token = _longest_token(tokenizer)
        """Bytes: a text of more than n times as many has more than n tokens."""

    def encode(self, text: str) -> list[int]:
        """A prompt's tokens, with what the model puts in front of every text."""
        return _encode(self.tokenizer, text)

    def encode_word(self, text: str) -> list[int]:
        """The tokens of a text as it stands within another."""
        return _encode(self.tokenizer, text, add_special_tokens=False)

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
        try:
            tokenizer = Tokenizer.from_str(self.tokenizer.to_str())
        except Exception as error:  # plain, where two tokens have one id: the library cannot read what it writes then
            raise InvalidRequest(
                "the chat has control tokens, which this model's tokenizer cannot take for text"
            ) from error
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
    """One answer's tokens to text, as they come. A character is shown once it is whole, and never changed.

    A token's text may depend on what stands before it: a space, the first bytes of its first character. So tokens are
    decoded behind some that ended in whole characters, at first the prompt's last ones: an answer continues its prompt.
    """

    def __init__(self, vocabulary: Vocabulary, prompt: Sequence[int] = (), *, skip_special_tokens: bool = True) -> None:
        self._vocabulary = vocabulary
        self._skip = skip_special_tokens
        tail = [token for token in prompt[-MOST_LOOKED_AT:] if not self._is_silent(token)]
        self._behind, self._held = self._parted(tail)
        self._before = self._decode(self._behind)
        self._prompts = self._text(self._held)
        """What the prompt left incomplete. As far as the answer leaves it so, it is the prompt's."""
        self._num_shown = 0
        """Characters of the held tokens' text."""

    def push(self, token: int) -> str:
        if self._is_silent(token):
            return ""
        self._held.append(token)
        text = self._text(self._held)
        num_whole = len(text.rstrip(REPLACEMENT))
        shown = text[self._first(text) : num_whole]
        self._num_shown = max(self._num_shown, num_whole)
        if shown and num_whole == len(text):
            self._behind, self._held = self._held, []
            self._before = self._decode(self._behind)
            self._num_shown, self._prompts = 0, ""
        elif len(self._held) >= MOST_HELD:
            shown += self._let_go(text)
        return shown

    def flush(self) -> str:
        """What the answer's end leaves: an incomplete character becomes U+FFFD."""
        text = self._text(self._held)
        rest = text[self._first(text) :]
        self._held, self._num_shown, self._prompts = [], 0, ""
        return rest

    def _let_go(self, text: str) -> str:
        """Of what is held only the last tokens are needed: all but the character that they may begin is shown."""
        first, self._held, self._prompts = self._first(text), self._held[-MOST_BYTES:], ""
        kept = self._text(self._held)
        num_begun = min(len(kept) - len(kept.rstrip(REPLACEMENT)), len(text) - first)
        self._num_shown = len(kept) - num_begun
        return text[first : len(text) - num_begun]

    def _first(self, text: str) -> int:
        """Where in the held tokens' text that begins which was not shown yet."""
        same = takewhile(lambda pair: pair[0] == pair[1], zip(self._prompts, text, strict=False))
        return max(self._num_shown, sum(1 for _ in same))

    def _parted(self, tail: list[int]) -> tuple[list[int], list[int]]:
        """The prompt's last tokens that end in a whole character, and those after them that do not."""
        for num_held in range(len(tail) + 1):
            end = len(tail) - num_held
            for start in range(end - 1, -1, -1):
                text = self._decode(tail[start:end])
                if text and not text.endswith(REPLACEMENT):
                    return tail[start:end], tail[end:]
        return [], tail

    def _text(self, tokens: list[int]) -> str:
        """Of tokens behind those that were shown; by themselves, where such tokens would spoil these."""
        text = self._decode(self._behind + tokens)
        return text[len(self._before) :] if text.startswith(self._before) else self._decode(tokens)

    def _is_silent(self, token: int) -> bool:
        return self._skip and token in self._vocabulary.control_ids

    def _decode(self, ids: list[int]) -> str:
        return self._vocabulary.decode(ids, skip_special_tokens=self._skip)
