"""Vocabularies of the kinds that models have, and the ways in which a text can be written in their tokens.

Whatever its own tokenizer would say, a model may answer with any tokens. So texts are cut by chance: of the tokens with
which a text can go on one is drawn, a byte or many characters long.
"""

import json
import os
import random
from collections.abc import Iterator, Sequence
from functools import cache

from octavo_scheduler.model import load_model
from octavo_scheduler.tokens import Vocabulary
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.models import smollm2
from tests.streaming.scripts import corpus

SEED = 7
SPACE = "\u2581"
LONGEST = 12
"""Bytes of a token that is drawn."""
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads add in another order, and learn other tokens


class Words:
    """A vocabulary without bytes: its texts are what its own decoder says. Any tokens make one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocabulary = Vocabulary(tokenizer)
        self.ids = sorted(set(tokenizer.get_vocab().values()) - self.vocabulary.control_ids)

    def cut(self, draw: random.Random, text: str, longest: int = LONGEST) -> list[int]:
        """As many tokens as the text has characters, or fewer."""
        return draw.choices(self.ids, k=draw.randint(1, len(text)))

    def text(self, ids: Sequence[int]) -> str:
        return self.vocabulary.decode(ids)

    def is_whole(self, ids: Sequence[int]) -> bool:
        return True


class Bytes:
    """A vocabulary whose texts are its tokens' bytes in UTF-8, so that a text may be cut inside its characters."""

    bytes_of: dict[int, bytes]

    def content(self, ids: Sequence[int]) -> bytes:
        return b"".join(self.bytes_of[i] for i in ids)

    def text(self, ids: Sequence[int]) -> str:
        """The whole characters: of one that is incomplete at the end, nothing."""
        return self.content(ids).decode(errors="ignore")

    def is_whole(self, ids: Sequence[int]) -> bool:
        return self.content(ids).decode(errors="ignore").encode() == self.content(ids)


class ByteLevel(Bytes):
    """Tokens are any bytes."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        letters = dict(byte_letters())
        tokens = vocabulary.tokenizer.get_vocab()
        plain = {
            token: i for token, i in tokens.items() if i not in vocabulary.control_ids and set(token) <= {*letters}
        }
        self.bytes_of = {i: bytes(letters[letter] for letter in token) for token, i in plain.items()}
        self._ids = {content: i for i, content in self.bytes_of.items()}

    def cut(self, draw: random.Random, text: str, longest: int = LONGEST) -> list[int]:
        data, ids, place = text.encode(), list[int](), 0
        while place < len(data):
            ends = [end for end in range(place + 1, place + longest + 1) if data[place:end] in self._ids]
            end = draw.choice(ends)
            ids.append(self._ids[data[place:end]])
            place = end
        return ids


class Pieces(Bytes):
    """As SentencePiece does it: pieces of whole characters, spaces written visibly; any character may come in bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocabulary = Vocabulary(tokenizer)
        tokens = tokenizer.get_vocab()
        self._bytes = [tokens[byte_token(byte)] for byte in range(256)]
        pieces = {piece: i for piece, i in tokens.items() if i not in {*self._bytes, *self.vocabulary.control_ids}}
        self.bytes_of = {i: piece.replace(SPACE, " ").encode() for piece, i in pieces.items()}
        self.bytes_of |= {i: bytes([byte]) for byte, i in enumerate(self._bytes)}
        self._ids = pieces

    def cut(self, draw: random.Random, text: str, longest: int = LONGEST) -> list[int]:
        text, ids, place = SPACE + text.replace(" ", SPACE), list[int](), 0
        while place < len(text):
            ends = [end for end in range(place + 1, place + longest + 1) if text[place:end] in self._ids]
            end = draw.choice(ends) if ends and draw.random() < 0.8 else place + 1
            piece = text[place:end]
            as_bytes = piece not in self._ids or (end == place + 1 and draw.random() < 0.5)
            ids += [self._bytes[b] for b in piece.replace(SPACE, " ").encode()] if as_bytes else [self._ids[piece]]
            place = end
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """The space that each text begins with is none of it."""
        return super().text(ids).removeprefix(" ")


Kind = Words | ByteLevel | Pieces


def byte_letters() -> Iterator[tuple[str, int]]:
    """The letter by which a byte-level vocabulary writes each byte: itself where that can be seen, else one from 256 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    yield from ((chr(byte), byte) for byte in visible)
    yield from ((chr(256 + nth), byte) for nth, byte in enumerate(hidden))


def byte_token(byte: int) -> str:
    return f"<0x{byte:02X}>"


@cache
def kinds() -> dict[str, Kind]:
    """By name. Trained on the same corpus each time, except for the first."""
    return {
        "byte-level of SmolLM2": ByteLevel(load_model(smollm2()).vocabulary),
        "byte-level across words": ByteLevel(Vocabulary(_across_words())),
        "SentencePiece": Pieces(_sentence_piece()),
        "Unigram": Words(_unigram()),
        "WordPiece": Words(_word_piece()),
    }


def _across_words() -> Tokenizer:
    """Knows no words, so that its tokens begin and end in the middle of characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(tokenizer, trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False))


def _sentence_piece() -> Tokenizer:
    """Pieces that were learnt, and a token for each byte; decodes as a Llama does."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    trainer = trainers.BpeTrainer(vocab_size=1500, limit_alphabet=500, special_tokens=["<unk>"], show_progress=False)
    learnt = json.loads(_trained(learner, trainer).to_str())["model"]
    tokens = {**learnt["vocab"], **{byte_token(b): len(learnt["vocab"]) + b for b in range(256)}}
    merges = [tuple(merge) for merge in learnt["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.pre_tokenizer = learner.pre_tokenizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=4000, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    return _trained(tokenizer, trainer)


def _word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=3000, special_tokens=["[UNK]"], show_progress=False)
    return _trained(tokenizer, trainer)


def _trained(tokenizer: Tokenizer, trainer: trainers.Trainer) -> Tokenizer:
    tokenizer.train_from_iterator(corpus(random.Random(SEED)), trainer)
    return tokenizer
