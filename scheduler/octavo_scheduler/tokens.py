"""Text to tokens and back. No torch."""

import re
from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from octavo_scheduler.template import ChatTemplate

_MARK = "\ue000{}\ue001"
_MARKS = re.compile("\ue000(\\d+)\ue001")


class Vocabulary:
    """A model's tokenizer. Control tokens are recognised in prompts and templates, never in what a chat user wrote."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.literal = Tokenizer.from_str(tokenizer.to_str())
        self.literal.encode_special_tokens = True
        control = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
        self._control = re.compile("|".join(map(re.escape, [*control, "\ue000", "\ue001"])))

    def encode(self, text: str) -> list[int]:
        """A prompt's tokens, with what the model puts in front of every text."""
        return list(self.tokenizer.encode(text).ids)

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
            tokenizer, piece = (self.literal, literals[int(piece)]) if is_literal else (self.tokenizer, piece)
            ids += tokenizer.encode(piece, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))


class Detokenizer:
    """One answer's tokens to text, as they come. Bytes of an incomplete character are held back."""

    def __init__(self, vocabulary: Vocabulary, *, skip_special_tokens: bool = True) -> None:
        self._vocabulary = vocabulary
        self._skip = skip_special_tokens
        self._stream = DecodeStream(skip_special_tokens=skip_special_tokens)
        self._held: list[int] = []

    def push(self, token: int) -> str:
        text = self._stream.step(self._vocabulary.tokenizer, token)
        if text is None:
            self._held.append(token)
            return ""
        self._held.clear()
        return str(text)

    def flush(self) -> str:
        """What the answer's end leaves: an incomplete character becomes U+FFFD."""
        held, self._held = self._held, []
        return self._vocabulary.decode(held, skip_special_tokens=self._skip) if held else ""
