"""The served model, as far as the scheduler knows it: names, limits, vocabulary, template. No weights."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from octavo_scheduler import limits
from octavo_scheduler.entries import Entries
from octavo_scheduler.errors import StartError
from octavo_scheduler.gguf_model import GgufMetadata, gguf_tokenizer
from octavo_scheduler.template import ChatTemplate
from octavo_scheduler.tokens import Vocabulary


@dataclass(frozen=True)
class ServedModel:
    """Lengths in tokens. `defaults` are the model's own sampling values, used where a request leaves them unset."""

    name: str
    vocabulary: Vocabulary
    vocab_size: int
    max_context: int
    end_token_ids: frozenset[int]
    template: ChatTemplate | None
    defaults: dict[str, float]


def load_model(path: Path, name: str | None = None, max_context: int | None = None) -> ServedModel:
    """Reads a folder (config.json, tokenizer.json) or a .gguf file. Raises StartError, which says what is wrong."""
    model = _read_model(path, name)
    if max_context is None:
        return model
    if not 2 <= max_context <= model.max_context:
        raise StartError(
            f"--max-context lies between 2 and the model's {model.max_context} tokens, not at {max_context}"
        )
    return replace(model, max_context=max_context)


def _read_model(path: Path, name: str | None) -> ServedModel:
    if path.is_dir():
        return _from_folder(path, name or path.resolve().name)
    if path.is_file() and path.suffix == ".gguf":
        return _from_gguf(path, name or path.stem)
    if path.exists():
        raise StartError(f"{path} is neither a model folder nor a .gguf file")
    raise StartError(f"the model {path} does not exist")


def _from_gguf(path: Path, name: str) -> ServedModel:
    metadata = GgufMetadata(path)
    tokens = metadata.tokens
    special = {f"{key}_token": tokens[token] for key in ("bos", "eos") if (token := metadata.token(key)) is not None}
    source = metadata.get("tokenizer.chat_template", str, "")
    return ServedModel(
        name=name,
        vocabulary=Vocabulary(gguf_tokenizer(metadata)),
        vocab_size=len(tokens),
        max_context=metadata.max_context,
        end_token_ids=frozenset(metadata.end_token_ids),
        template=ChatTemplate(source, special) if source else None,
        defaults={},
    )


def _from_folder(folder: Path, name: str) -> ServedModel:
    config = Entries(folder / "config.json", _read_json(folder / "config.json"))
    generation_file = folder / "generation_config.json"
    generation = Entries(generation_file, _read_json(generation_file, {}))
    settings = _read_json(folder / "tokenizer_config.json", {})
    if not (folder / "tokenizer.json").is_file():
        raise StartError(f"{folder} has no tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the tokenizers library raises plain Exception for a file it cannot parse
        raise StartError(f"{folder / 'tokenizer.json'} cannot be read: {error}") from error
    vocabulary = Vocabulary(tokenizer)
    vocab_size = min(config.size("vocab_size", limits.MAX_VOCABULARY), vocabulary.num_tokens)  # the rest is padding
    ends = generation.token_ids("eos_token_id", vocab_size)
    source = _template_source(folder, settings)
    return ServedModel(
        name=name,
        vocabulary=vocabulary,
        vocab_size=vocab_size,
        max_context=config.size("max_position_embeddings", limits.MAX_CONTEXT_TOKENS),
        end_token_ids=config.token_ids("eos_token_id", vocab_size) or frozenset() if ends is None else ends,
        template=ChatTemplate(source, _special_tokens(settings)) if source else None,
        defaults=_sampling_defaults(generation),
    )


def _sampling_defaults(generation: Entries) -> dict[str, float]:
    given = {
        "temperature": generation.number("temperature", limits.TEMPERATURE),
        "top_p": generation.number("top_p", (0.0, 1.0)),
        "top_k": generation.whole_number("top_k", limits.TOP_K),
    }
    if given["top_p"] == 0:
        generation.refuse("top_p", "a number in (0, 1]")
    is_sampled = generation.flag("do_sample")
    return {name: value for name, value in given.items() if is_sampled and value is not None}


def _template_source(folder: Path, settings: dict[str, Any]) -> str | None:
    own = folder / "chat_template.jinja"
    if own.is_file():
        try:
            return own.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise StartError(f"{own} cannot be read: {error}") from error
    source = settings.get("chat_template")
    if isinstance(source, list):
        named = [entry for entry in source if isinstance(entry, dict) and entry.get("name") == "default"]
        source = named[0].get("template") if named else None
    if source is not None and not isinstance(source, str):
        raise StartError(f"{folder / 'tokenizer_config.json'} has a chat_template that is not text")
    return source


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    values = {key: settings.get(key) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    texts = {key: value.get("content") if isinstance(value, dict) else value for key, value in values.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _read_json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    if not path.is_file() and default is not None:
        return default
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StartError(f"{path.parent} has no {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise StartError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise StartError(f"{path} does not hold a JSON object")
    return content
