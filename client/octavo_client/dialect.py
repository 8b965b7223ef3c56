"""Settings by the names and in the words of other engines, said in our own.

What asks for something that Octavo always does, or that shapes no answer, is accepted. What asks for something it does not
do is refused; what it does otherwise, and is no reason to refuse, is a warning.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from octavo_client.device import best_device
from octavo_client.errors import ConfigError
from octavo_client.settings import Settings


class OthersSettings(TypedDict, total=False):
    """Names that other engines have for settings, with what becomes of them here."""

    tokenizer: str | None  # must be the model's own
    tokenizer_mode: str  # "auto" or "slow": there is one
    trust_remote_code: bool  # code in model folders is never run
    revision: str | None  # nothing is downloaded
    enforce_eager: bool  # shapes no answer
    disable_log_stats: bool  # nothing is logged unless asked
    distributed_executor_backend: str | None  # ranks are processes of one machine
    pipeline_parallel_size: int  # 1
    data_parallel_size: int  # workers
    cpu_offload_gb: float  # 0
    quantization: str | None  # "fp8"; what a folder says of itself is read from it
    load_in_low_bit: str | None  # format of the weights
    enable_chunked_prefill: bool | None  # always on
    chunked_prefill_token_size: int | None  # max_chunk
    attention_class: type | None  # ops


class AnySettings(Settings, OthersSettings, total=False):
    """Ours and theirs."""


LOW_BIT = {
    **dict.fromkeys(("fp8", "fp8_e4m3"), "fp8"),
    **dict.fromkeys(("int8", "sym_int8"), "int8"),
    **dict.fromkeys(("int4", "sym_int4", "asym_int4", "woq_int4"), "int4"),
    **dict.fromkeys(("bf16", "bfloat16"), "bfloat16"),
    **dict.fromkeys(("fp16", "float16"), "float16"),
}
IN_THE_FOLDER = ("awq", "gptq", "awq_marlin", "gptq_marlin", "gguf")
"""Kinds of quantised weights that are recognised by themselves."""


def translate(model: str | Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings in our own words. Raises ConfigError for what is not done here. What is unknown stays."""
    given = {"device": "auto"} | {name: value for name, value in settings.items() if value is not None}
    _only_as(given.pop("tokenizer", model) in (model, str(model)), "tokenizer", "the model's own")
    ours: dict[str, Any] = {}
    for name, value in given.items():
        ours |= WORDS[name](value) if name in WORDS else {name: value}
    return _as_the_device_can(ours)


def _as_the_device_can(ours: dict[str, Any]) -> dict[str, Any]:
    device = best_device() if ours["device"] == "auto" else ours["device"]
    if device == "cpu" and ours.get("weights") == "fp8":
        warnings.warn("CPUs have no kernels for fp8: int8 is as small and closer to the original.", stacklevel=4)
        ours["weights"] = "int8"
    return ours | {"device": device}


def _nothing(value: object) -> dict[str, Any]:
    return {}


def _refused_unless(name: str, *accepted: object) -> Callable[[object], dict[str, Any]]:
    def check(value: object) -> dict[str, Any]:
        _only_as(value in accepted, name, " or ".join(map(repr, accepted)))
        return {}

    return check


def _only_as(is_fine: bool, name: str, what: str) -> None:
    if not is_fine:
        raise ConfigError(f"{name} is not for choice here, other than as {what}.")


def _never_remote(value: object) -> dict[str, Any]:
    if value:
        warnings.warn("trust_remote_code: code in model folders is never run here.", stacklevel=4)
    return {}


def _always_chunked(value: object) -> dict[str, Any]:
    if not value:
        warnings.warn("enable_chunked_prefill: prompts are always computed in chunks here.", stacklevel=4)
    return {}


def _quantization(value: str) -> dict[str, Any]:
    return {} if value in IN_THE_FOLDER else _low_bit(value)


def _low_bit(value: str) -> dict[str, Any]:
    if value not in LOW_BIT:
        raise ConfigError(f"weights in {value!r} are not known here; {', '.join(LOW_BIT)} are.")
    return {"weights": LOW_BIT[value]}


def _attention(own: type) -> dict[str, Any]:
    """The worker loads the class from its file, as it is another process."""
    try:
        return {"ops": f"{Path(inspect.getfile(own)).resolve()}:{own.__qualname__}"}
    except (TypeError, OSError) as error:
        raise ConfigError("attention_class must be a class in a file, from where workers can load it.") from error


WORDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "tokenizer_mode": _refused_unless("tokenizer_mode", "auto", "slow"),
    "trust_remote_code": _never_remote,
    "revision": _refused_unless("revision", "main"),
    "enforce_eager": _nothing,
    "disable_log_stats": _nothing,
    "distributed_executor_backend": _nothing,
    "pipeline_parallel_size": _refused_unless("pipeline_parallel_size", 1),
    "data_parallel_size": lambda value: {"num_workers": value},
    "cpu_offload_gb": _refused_unless("cpu_offload_gb", 0),
    "quantization": _quantization,
    "load_in_low_bit": _low_bit,
    "enable_chunked_prefill": _always_chunked,
    "chunked_prefill_token_size": lambda value: {"max_chunk": value},
    "attention_class": _attention,
}
