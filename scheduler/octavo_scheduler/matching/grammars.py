"""Inside the helper process: constraints become grammars, grammars follow answers and say what may come next."""

import json
from collections import OrderedDict
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from octavo_scheduler import limits

KEPT_GRAMMARS = 64
"""Compiled ones that a request with the same constraint starts from."""

WHITESPACE = r"\n[ \t]{0,32}| "
"""Between the parts of JSON: a line break and an indent, or a space. A model that may go on with it may do so for ever."""


class Unfit(Exception):
    """A constraint that makes no grammar, or an answer that it does not allow; the sentence says why."""


class Grammars:
    """All answers that this process follows, by key."""

    def __init__(self, tokenizer: str, vocab_size: int, end_token_ids: list[int]) -> None:
        """`tokenizer`: as JSON. The end tokens are allowed where a grammar may end, and nowhere else."""
        self._tokenizer = LLTokenizer(tokenizer, n_vocab=vocab_size, eos_token=end_token_ids)
        self._mask_bytes = -(-vocab_size // 32) * 4
        self._nothing = bytes(self._mask_bytes)
        self._limits = LLParserLimits(max_lexer_states=limits.MAX_LEXER_STATES, verbose_errors=False)
        self._compiled: OrderedDict[tuple[str, str], LLMatcher] = OrderedDict()
        self._followed: dict[int, LLMatcher] = {}

    def answer(self, asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """What `__main__` says of it."""
        masks: dict[int, bytes] = {}
        errors: list[tuple[int, str]] = []
        for key in asked.get("drop", ()):
            self._followed.pop(key, None)
        begun = {key: (kind, text) for key, kind, text, _ in asked.get("begin", ())}
        tokens = {key: tokens for key, _, _, tokens in asked.get("begin", ())} | dict(asked.get("step", ()))
        for key, new in tokens.items():
            try:
                if key in begun:
                    self._followed[key] = self._start(*begun[key])
                masks[key] = self._go_on(self._followed[key], new)
            except Unfit as error:
                self._followed.pop(key, None)
                errors.append((key, str(error)))
        return {"masks": list(masks), "errors": errors}, b"".join(masks.values())

    def _start(self, kind: str, text: str) -> LLMatcher:
        constraint = kind, text
        if constraint not in self._compiled:
            self._compiled[constraint] = self._compile(kind, text)
            if len(self._compiled) > KEPT_GRAMMARS:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(constraint)
        return self._compiled[constraint].deep_copy()

    def _compile(self, kind: str, text: str) -> LLMatcher:
        try:
            matcher = LLMatcher(self._tokenizer, grammar_of(kind, text), log_level=0, limits=self._limits)
        except ValueError as error:
            raise Unfit(sentence_of(str(error))) from error
        _check(matcher)
        return matcher

    def _go_on(self, matcher: LLMatcher, tokens: list[int]) -> bytes:
        """The mask of what may come after these tokens."""
        num_taken = matcher.try_consume_tokens(tokens)
        _check(matcher)
        if num_taken < len(tokens):
            raise Unfit(f"it does not allow token {num_taken} of what was answered")
        mask = matcher.compute_bitmask()[: self._mask_bytes]
        _check(matcher)
        if mask == self._nothing:
            raise Unfit("it allows no token to come next")
        return mask


def grammar_of(kind: str, text: str) -> str:
    """Of a constraint, as the library wants it. Raises ValueError."""
    match kind:
        case "json_schema":
            is_object = isinstance(_json(text), dict)  # else it allows everything, or nothing
            return LLMatcher.grammar_from_json_schema(
                text, defaults={"whitespace_pattern": WHITESPACE} if is_object else None
            )
        case "regex":
            return LLMatcher.grammar_from_regex(text)
    return LLMatcher.grammar_from_lark(text)


def _json(text: str) -> object:
    """Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from error


def sentence_of(error: str) -> str:
    """The library's own words, in one line."""
    return " ".join(error.replace("<non-verbose/>", "").split())[: limits.MAX_GRAMMAR_ERROR]


def _check(matcher: LLMatcher) -> None:
    if matcher.is_error():
        raise Unfit(sentence_of(matcher.get_error()))
