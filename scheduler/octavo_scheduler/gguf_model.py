"""What the scheduler needs from a GGUF file: vocabulary, chat template, limits. Weights stay with the workers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from octavo_scheduler.errors import StartError

_CONTROL, _USER_DEFINED = 3, 4

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
    """The key-value part of a GGUF file. Raises StartError when the file is not a readable GGUF."""

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader  # here, because it takes a while and folders do not need it

        try:
            self._fields = GGUFReader(path).fields
        except (ValueError, IndexError, KeyError, OSError, OverflowError, MemoryError) as error:
            raise StartError(f"{path} is not a complete GGUF file: {error}") from error
        self.path = path

    def get(self, key: str, default: Any = None) -> Any:
        field = self._fields.get(key)
        return default if field is None else field.contents()

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise StartError(f"{self.path} lacks the entry {key}")
        return value

    @property
    def max_context(self) -> int:
        return int(self.need(f"{self.need('general.architecture')}.context_length"))

    @property
    def end_token_ids(self) -> list[int]:
        ids = [self.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
        return sorted({int(token) for token in ids if token is not None})


def gguf_tokenizer(metadata: GgufMetadata) -> Tokenizer:
    """The tokenizer of the file's vocabulary: byte-level BPE ("gpt2") or SentencePiece's BPE ("llama"); else StartError."""
    kind, pre = metadata.need("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if kind == "gpt2" and pre in PRE_TOKENIZERS:
        tokenizer = _byte_level(metadata, PRE_TOKENIZERS[pre]())
    elif kind == "llama":
        tokenizer = _sentence_piece(metadata)
    else:
        raise StartError(
            f"{metadata.path} has a vocabulary of kind {kind}/{pre}; known are llama, and gpt2 with "
            f"{', '.join(sorted(PRE_TOKENIZERS))}. Serve the model from a folder with a tokenizer.json instead"
        )
    tokens: list[str] = metadata.need("tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type", [])
    added = [(tokens[i], kind) for i, kind in enumerate(types) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text, kind in added if kind == _CONTROL])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text, kind in added if kind == _USER_DEFINED])
    if metadata.get("tokenizer.ggml.add_bos_token", kind == "llama"):
        bos = metadata.need("tokenizer.ggml.bos_token_id")
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    return tokenizer


def _byte_level(metadata: GgufMetadata, pre_tokenizer: pre_tokenizers.PreTokenizer) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate(metadata.need("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ", 1)) for merge in metadata.need("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(metadata: GgufMetadata) -> Tokenizer:
    """SentencePiece joins the two neighbours whose union has the best score; as a list of merges, best score first."""
    tokens: list[str] = metadata.need("tokenizer.ggml.tokens")
    scores = metadata.need("tokenizer.ggml.scores")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = [
        (-scores[i], vocabulary[token[:cut]], vocabulary[token[cut:]])
        for i, token in enumerate(tokens)
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    pairs = [(tokens[left], tokens[right]) for _, left, right in sorted(merges)]
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    prefix = "first" if metadata.get("tokenizer.ggml.add_space_prefix", True) else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix, split=False)
    plain = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*plain, decoders.Strip(" ", 1, 0)] if prefix == "first" else plain)
    return tokenizer
