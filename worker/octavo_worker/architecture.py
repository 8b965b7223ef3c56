"""What a decoder of the Llama family looks like, read from config.json or from GGUF metadata."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo_worker.errors import ModelError
from octavo_worker.rope import Rope

MOST, MOST_CONTEXT = (1 << 31) - 1, 1 << 26
"""Of each size: kernels count in int32 what they do not multiply."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of the decoder. Whether the head is tied is seen from the weights: a tied one has none of its own."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    eps: float
    max_context: int
    rope: Rope

    def __post_init__(self) -> None:
        sizes = (self.hidden, self.layers, self.heads, self.kv_heads, self.head_dim, self.intermediate, self.vocab)
        if min(*sizes, self.max_context) < 1 or self.heads % self.kv_heads or self.head_dim % 2:
            raise ModelError(f"the model's sizes contradict each other: {self}")
        if max(sizes) > MOST or self.max_context > MOST_CONTEXT:
            raise ModelError(f"the model's sizes are out of proportion: {self}")
        if not (0 <= self.eps < 1 and self.rope.is_sound):
            raise ModelError(f"the model's numbers make no sense: {self}")

    @property
    def q_width(self) -> int:
        """Columns of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of all key heads, or of all value heads."""
        return self.kv_heads * self.head_dim

    def as_huggingface(self) -> dict[str, Any]:
        """What `from_huggingface` reads again, but for a rope scaling, whose frequencies are kept elsewhere."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate,
            "vocab_size": self.vocab,
            "rms_norm_eps": self.eps,
            "max_position_embeddings": self.max_context,
            "rope_theta": self.rope.theta,
        }


def from_huggingface(config: Mapping[str, Any]) -> Architecture:
    """Raises ModelError for anything but a Llama that this decoder computes exactly."""
    names = config.get("architectures") or [str(config.get("model_type", "unknown"))]
    if not isinstance(names, list):
        raise ModelError("config.json has architectures that are no list")
    if names != ["LlamaForCausalLM"]:
        raise ModelError(f"architecture {', '.join(map(str, names))} is not supported; LlamaForCausalLM is")
    if config.get("hidden_act", "silu") != "silu" or config.get("mlp_bias"):
        raise ModelError("only SiLU without biases is supported in the feed-forward part of a Llama")
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return Architecture(
            hidden=hidden,
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            intermediate=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            eps=float(config.get("rms_norm_eps", 1e-6)),
            max_context=int(config["max_position_embeddings"]),
            rope=rope_from_huggingface(config),
        )
    except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise ModelError(f"config.json lacks a value or has a bad one: {error}") from error


def rope_from_huggingface(config: Mapping[str, Any]) -> Rope:
    """transformers 4 keeps `rope_theta` beside `rope_scaling`; transformers 5 keeps both in `rope_parameters`."""
    scaling = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = float(scaling.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "default":
        return Rope(theta=theta)
    if kind == "linear":
        return Rope(theta=theta, divisor=float(scaling["factor"]))
    if kind == "llama3":
        return Rope(
            theta=theta,
            divisor=float(scaling["factor"]),
            low_frequency=float(scaling["low_freq_factor"]),
            high_frequency=float(scaling["high_freq_factor"]),
            original_context=int(scaling["original_max_position_embeddings"]),
        )
    raise ModelError(f"rope scaling {kind!r} is not supported; default, linear and llama3 are")


def from_gguf(metadata: Mapping[str, Any], vocab: int) -> Architecture:
    """Raises ModelError for anything but general.architecture = llama. `vocab`: rows of the embedding."""
    name = metadata.get("general.architecture")
    if name != "llama":
        raise ModelError(f"GGUF architecture {name!r} is not supported; 'llama' is")
    if metadata.get("llama.expert_count"):
        raise ModelError("GGUF models with experts are not supported")
    kind = metadata.get("llama.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise ModelError(f"GGUF rope scaling {kind!r} is not supported; none and linear are")
    try:
        heads, hidden = int(metadata["llama.attention.head_count"]), int(metadata["llama.embedding_length"])
        head_dim = int(metadata.get("llama.attention.key_length", hidden // heads))
        if int(metadata.get("llama.rope.dimension_count", head_dim)) != head_dim:
            raise ModelError("GGUF models that rotate only a part of each head are not supported")
        return Architecture(
            hidden=hidden,
            layers=int(metadata["llama.block_count"]),
            heads=heads,
            kv_heads=int(metadata.get("llama.attention.head_count_kv", heads)),
            head_dim=head_dim,
            intermediate=int(metadata["llama.feed_forward_length"]),
            vocab=vocab,
            eps=float(metadata["llama.attention.layer_norm_rms_epsilon"]),
            max_context=int(metadata["llama.context_length"]),
            rope=Rope(
                theta=float(metadata.get("llama.rope.freq_base", 10_000.0)),
                divisor=float(metadata.get("llama.rope.scaling.factor", 1.0)) if kind == "linear" else 1.0,
            ),
        )
    except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise ModelError(f"the GGUF metadata lacks a value or has a bad one: {error}") from error
