"""What the scheduler needs from a GGUF file: vocabulary, chat template, limits. Weights stay with the workers."""

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from octavo.gguf_header import BadHeader, read_header
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from octavo_scheduler.errors import StartError
from octavo_scheduler.limits import MAX_CONTEXT_TOKENS, MAX_ECHO

T = TypeVar("T")

_CONTROL, _USER_DEFINED = 3, 4
MAX_PIECE = 1024
"""Characters of a token of SentencePiece: each place to cut it is looked at."""

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior="isolated"), bytes_only])


PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": _single_digits,
    "starcoder": _single_digits,
    "refact": _single_digits,
    "llama-bpe": lambda: _split(_LLAMA3_SPLIT),
    "qwen2": lambda: _split(_QWEN2_SPLIT),
}
"""How text is cut before byte-pair merges, by the name that `tokenizer.ggml.pre` gives."""


class GgufMetadata:
    """The key-value part of a GGUF file. Raises StartError, which names file and entry, for what does not fit."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self._values = read_header(data, with_arrays=True).metadata
        except (OSError, ValueError, BadHeader) as error:
            raise StartError(f"{path} is not a complete GGUF file: {error}") from error
        self.path = path
        self.tokens: list[str] = self.texts("tokenizer.ggml.tokens")
        if not self.tokens:
            self.refuse("tokenizer.ggml.tokens", "a list of texts that has one")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str, kind: type[T], default: T) -> T:
        """A value of this type; the default where there is none."""
        value = self._values.get(key, default)
        return value if type(value) is kind else self.refuse(key, f"a value of type {kind.__name__}")

    def need(self, key: str, kind: type[T]) -> T:
        """A value of this type that has to be there."""
        if key not in self._values:
            raise StartError(f"{self.path} lacks the entry {key}")
        value = self._values[key]
        return value if type(value) is kind else self.refuse(key, f"a value of type {kind.__name__}")

    def texts(self, key: str) -> list[str]:
        return self._list(key, str, self.need(key, list))

    def numbers(self, key: str, kind: type[T]) -> list[T]:
        """One for each token."""
        numbers = self._list(key, kind, self.need(key, list))
        return numbers if len(numbers) == len(self.tokens) else self.refuse(key, "as long as the list of tokens")

    def token(self, name: str) -> int | None:
        """The id of a token that has a role, None where the file names none."""
        key = f"tokenizer.ggml.{name}_token_id"
        if key not in self._values:
            return None
        token = self.need(key, int)
        return token if 0 <= token < len(self.tokens) else self.refuse(key, f"an id below {len(self.tokens)}")

    def _list(self, key: str, kind: type[T], values: list[T]) -> list[T]:
        return (
            values if all(type(value) is kind for value in values) else self.refuse(key, f"a list of {kind.__name__}")
        )

    def refuse(self, key: str, wanted: str) -> NoReturn:
        raise StartError(f"{self.path} has a bad entry {key}: it must be {wanted}")

    @property
    def max_context(self) -> int:
        key = f"{self.need('general.architecture', str)[:MAX_ECHO]}.context_length"
        context = self.need(key, int)
        if not 1 <= context <= MAX_CONTEXT_TOKENS:
            self.refuse(key, f"a whole number in [1, {MAX_CONTEXT_TOKENS}]")
        return context

    @property
    def end_token_ids(self) -> list[int]:
        ids = [self.token(name) for name in ("eos", "eot", "eom")]
        return sorted({token for token in ids if token is not None})


def gguf_tokenizer(metadata: GgufMetadata) -> Tokenizer:
    """The tokenizer of the file's vocabulary: byte-level BPE ("gpt2") or SentencePiece's BPE ("llama"); else StartError."""
    kind, pre = metadata.need("tokenizer.ggml.model", str), metadata.get("tokenizer.ggml.pre", str, "default")
    if not (kind == "llama" or (kind == "gpt2" and pre in PRE_TOKENIZERS)):
        raise StartError(
            f"{metadata.path} has a vocabulary of kind {kind[:MAX_ECHO]}/{pre[:MAX_ECHO]}; known are llama, and gpt2 with "
            f"{', '.join(sorted(PRE_TOKENIZERS))}. Serve the model from a folder with a tokenizer.json instead"
        )
    try:
        made = _byte_level(metadata, PRE_TOKENIZERS[pre]()) if kind == "gpt2" else _sentence_piece(metadata)
        return _with_added_tokens(made, metadata, adds_bos=kind == "llama")
    except StartError:
        raise
    except Exception as error:  # the tokenizers library raises plain Exception for a vocabulary that makes no sense
        raise StartError(f"{metadata.path} has a vocabulary that makes no tokenizer: {error}") from error


def _with_added_tokens(tokenizer: Tokenizer, metadata: GgufMetadata, *, adds_bos: bool) -> Tokenizer:
    tokens, has_types = metadata.tokens, "tokenizer.ggml.token_type" in metadata
    types = metadata.numbers("tokenizer.ggml.token_type", int) if has_types else []
    added = [(tokens[i], kind) for i, kind in enumerate(types) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text, kind in added if kind == _CONTROL])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text, kind in added if kind == _USER_DEFINED])
    if metadata.get("tokenizer.ggml.add_bos_token", bool, adds_bos):
        bos = metadata.token("bos")
        if bos is None:
            raise StartError(f"{metadata.path} lacks the entry tokenizer.ggml.bos_token_id")
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    return tokenizer


def _byte_level(metadata: GgufMetadata, pre_tokenizer: pre_tokenizers.PreTokenizer) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate(metadata.tokens)}
    halves = (merge.partition(" ") for merge in metadata.texts("tokenizer.ggml.merges"))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[(left, right) for left, _, right in halves]))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(metadata: GgufMetadata) -> Tokenizer:
    """SentencePiece joins the two neighbours whose union has the best score; as a list of merges, best score first."""
    tokens, scores = metadata.tokens, metadata.numbers("tokenizer.ggml.scores", float)
    if max(map(len, tokens)) > MAX_PIECE:
        metadata.refuse("tokenizer.ggml.tokens", f"a list of texts of at most {MAX_PIECE} characters")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = [
        (-scores[i], vocabulary[token[:cut]], vocabulary[token[cut:]])
        for i, token in enumerate(tokens)
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    pairs = [(tokens[left], tokens[right]) for _, left, right in sorted(merges)]
    unknown = tokens[metadata.token("unknown") or 0]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    prefix = "first" if metadata.get("tokenizer.ggml.add_space_prefix", bool, True) else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix, split=False)
    plain = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*plain, decoders.Strip(" ", 1, 0)] if prefix == "first" else plain)
    return tokenizer
