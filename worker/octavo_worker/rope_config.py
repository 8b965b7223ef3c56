"""Rope as config.json and GGUF metadata write it. What is not known here is refused: positions that are a little wrong go
unnoticed in short prompts and end in nonsense in long ones."""

from collections.abc import Mapping
from typing import Any

from octavo_worker.errors import ModelError
from octavo_worker.rope import Llama3, Rope, Yarn, yarn_magnitude

ORIGINAL = "original_max_position_embeddings"
KEYS = {
    "default": set[str](),
    "linear": {"factor"},
    "dynamic": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", ORIGINAL},
    "yarn": {
        *("factor", ORIGINAL, "attention_factor", "mscale", "mscale_all_dim"),
        *("beta_fast", "beta_slow", "truncate"),
    },
}
"""Of each kind of scaling."""
COMMON = {"rope_theta", "rope_type", "type"}
GGUF = "llama.rope.scaling."
GGUF_KEYS = {
    "none": {"type"},
    "linear": {"type", "factor"},
    "yarn": {
        *("type", "factor", "original_context_length", "finetuned", "attn_factor"),
        *("yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow"),
    },
}


def rope_from_huggingface(config: Mapping[str, Any]) -> Rope:
    """Raises ModelError; KeyError, TypeError or ValueError for a value that is missing or bad.

    transformers 4 keeps `rope_theta` beside `rope_scaling`; transformers 5 keeps both in `rope_parameters`.
    """
    scaling = scaling_of(config)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in KEYS:
        raise ModelError(f"rope scaling {kind!r} is not supported; {', '.join(KEYS)} are")
    unknown = sorted(name for name in scaling if name not in COMMON | KEYS[kind])
    if unknown:
        raise ModelError(f"rope scaling {kind!r} with {', '.join(unknown)} is not supported: they may change positions")
    theta = theta_of(config, scaling)
    if kind == "linear":
        return Rope(theta, float(scaling["factor"]))
    if kind == "llama3":
        if scaling["low_freq_factor"] == scaling["high_freq_factor"]:
            raise ValueError("low_freq_factor and high_freq_factor are the same")
        return Llama3(
            theta,
            float(scaling["factor"]),
            low_frequency=float(scaling["low_freq_factor"]),
            high_frequency=float(scaling["high_freq_factor"]),
            original_context=int(scaling[ORIGINAL]),
        )
    # Dynamic scaling changes nothing up to the model's own context, and longer ones are refused: keys are cached as they
    # were rotated, so that their base cannot follow the length.
    return yarn_from_huggingface(theta, scaling) if kind == "yarn" else Rope(theta)


def scaling_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The scaling and what belongs to it, in whichever form it is written. `null` is the same as missing."""
    old, new = config.get("rope_scaling") or {}, config.get("rope_parameters") or {}
    if old and new and dict(old) != dict(new):
        raise ModelError("config.json has rope_scaling and rope_parameters, which differ; keep the one that holds")
    known = {"rope_scaling", "rope_parameters", "rope_theta"}
    others = sorted(key for key in config if key.startswith("rope_") and key not in known and config[key])
    if others:
        raise ModelError(f"config.json has {', '.join(others)}, which is not supported: it may change positions")
    scaling = {name: value for name, value in (new or old).items() if value is not None}
    own, original = config.get(ORIGINAL), scaling.get(ORIGINAL)
    if own is not None and original not in (None, own):
        raise ModelError(f"config.json has two values of {ORIGINAL}: {original} and {own}")
    return scaling


def theta_of(config: Mapping[str, Any], scaling: Mapping[str, Any]) -> float:
    """The base, from one place or from two that agree."""
    found = {float(each) for each in (scaling.get("rope_theta"), config.get("rope_theta")) if each is not None}
    if not found:
        raise ModelError(
            'config.json has no rope_theta, the base of positions; models older than that key mean "rope_theta": 10000.0'
        )
    if len(found) > 1:
        raise ModelError(f"config.json has two values of rope_theta: {', '.join(map(str, sorted(found)))}")
    return found.pop()


def yarn_from_huggingface(theta: float, scaling: Mapping[str, Any]) -> Yarn:
    factor, sharpness = float(scaling["factor"]), scaling.get("attention_factor")
    scales = float(scaling.get("mscale") or 0), float(scaling.get("mscale_all_dim") or 0)
    if sharpness is None:
        sharpness = yarn_magnitude(factor)
        if all(scales):
            sharpness = yarn_magnitude(factor, scales[0]) / yarn_magnitude(factor, scales[1])
    return Yarn(
        theta,
        factor,
        float(sharpness),
        original_context=int(scaling[ORIGINAL]),
        beta_fast=float(scaling.get("beta_fast") or 32),
        beta_slow=float(scaling.get("beta_slow") or 1),
        truncate=bool(scaling.get("truncate", True)),
    )


def rope_to_huggingface(rope: Rope) -> dict[str, Any]:
    """Keys of config.json that `rope_from_huggingface` reads again."""
    known: dict[str, Any] = {"rope_theta": rope.theta}
    if isinstance(rope, Yarn):
        scaling = {
            "rope_type": "yarn",
            "factor": rope.divisor,
            "attention_factor": rope.magnitude,
            ORIGINAL: rope.original_context,
            "beta_fast": rope.beta_fast,
            "beta_slow": rope.beta_slow,
        }
        return known | {"rope_scaling": scaling}
    return known if rope.divisor == 1 else known | {"rope_scaling": {"rope_type": "linear", "factor": rope.divisor}}


def rope_from_gguf(metadata: Mapping[str, Any]) -> Rope:
    """Raises ModelError; KeyError, TypeError or ValueError for a value that is missing or bad.

    That llama.cpp takes 10,000 for a base that is missing is part of the format. So Llama 3's scaling, which is a tensor.
    """
    theta = float(metadata.get("llama.rope.freq_base", 10_000.0))
    scaling = {name.removeprefix(GGUF): value for name, value in metadata.items() if name.startswith(GGUF)}
    kind = scaling.get("type", "none")
    if kind not in GGUF_KEYS:
        raise ModelError(f"GGUF rope scaling {kind!r} is not supported; {', '.join(GGUF_KEYS)} are")
    unknown = sorted(set(scaling) - GGUF_KEYS[kind])
    if unknown and kind != "none":
        raise ModelError(f"GGUF rope scaling {kind!r} with {', '.join(unknown)} is not supported")
    if kind != "yarn":
        return Rope(theta, float(scaling["factor"]) if kind == "linear" else 1.0)
    factor = float(scaling["factor"])
    sharpness = float(scaling.get("attn_factor", 1)) * float(scaling.get("yarn_attn_factor", 1))
    return Yarn(
        theta,
        factor,
        yarn_magnitude(factor) * sharpness,
        original_context=int(scaling["original_context_length"]),
        beta_fast=float(scaling.get("yarn_beta_fast", 32)),
        beta_slow=float(scaling.get("yarn_beta_slow", 1)),
    )
