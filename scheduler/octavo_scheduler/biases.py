"""What a request asks of logits: logit_bias, min_tokens and bad_words become one list of biases for the worker.

A word is forbidden as the tokens that the tokenizer makes of it, and of it after a space: the last of them may not come
after the others.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from math import inf

from octavo_scheduler import limits
from octavo_scheduler.core.request import ALWAYS, NO_BIASES, Biases
from octavo_scheduler.errors import require
from octavo_scheduler.model import ServedModel

Bias = tuple[int, float, int, int]
"""A row of core.request.Biases."""


def biases_of(
    model: ServedModel,
    logit_bias: Sequence[tuple[int, float]],
    bad_words: Sequence[str],
    min_tokens: int,
    ends: Collection[int],
) -> Biases:
    """`ends`: tokens that end the answer, which come after `min_tokens` others at the earliest. Raises InvalidRequest."""
    added = _logit_bias(model, logit_bias)
    early = [(token, -inf, min_tokens, 0) for token in sorted(ends)] if min_tokens else []
    found = [*added, *early, *chain.from_iterable(_word(tokens) for tokens in _spellings(model, bad_words))]
    if not found:
        return NO_BIASES
    given, most = len(found), limits.MAX_BIASES
    sentence = (
        f"logit_bias, the tokens of bad_words and those that min_tokens keeps back are {given}; at most {most} can be"
    )
    require(given <= most, sentence, "options.sampling", given=given, most=most)
    tokens, values, until, contexts = zip(*found, strict=True)
    return Biases(tokens=tokens, values=values, until=until, contexts=contexts)


def _logit_bias(model: ServedModel, logit_bias: Sequence[tuple[int, float]]) -> Iterable[Bias]:
    given, most, field = len(logit_bias), limits.MAX_LOGIT_BIASES, "options.sampling.logit_bias"
    require(given <= most, f"logit_bias has {given} entries; at most {most} can be", field, given=given, most=most)
    require(len({token for token, _ in logit_bias}) == given, "logit_bias names a token twice", field)
    low, high = limits.LOGIT_BIAS
    for token, value in logit_bias:
        sentence = f"logit_bias: token id {token} is outside the vocabulary of {model.vocab_size} tokens"
        require(token < model.vocab_size, sentence, field, given=token)
        require(low <= value <= high, f"logit_bias of token {token} is {value}; it must lie in [{low}, {high}]", field)
    return [(token, value, ALWAYS, 0) for token, value in logit_bias]


def _spellings(model: ServedModel, words: Sequence[str]) -> list[tuple[int, ...]]:
    """Token ids, each once."""
    given, most, field = len(words), limits.MAX_BAD_WORDS, "options.sampling.bad_words"
    require(given <= most, f"bad_words has {given} words; at most {most} can be", field, given=given, most=most)
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        size, most = len(word.encode()), limits.MAX_BAD_WORD_BYTES
        sentence = f"each of bad_words is no blank, and has at most {most} bytes, not {size}"
        require(bool(word.strip()) and size <= most, sentence, field, given=size, most=most)
        for text in (word, " " + word.lstrip()):
            found[tuple(model.vocabulary.encode_word(text))] = None
    return [spelling for spelling in found if spelling]


def _word(tokens: tuple[int, ...]) -> list[Bias]:
    *before, last = tokens
    return [*((token, 0.0, ALWAYS, -1) for token in before), (last, -inf, ALWAYS, len(before))]
