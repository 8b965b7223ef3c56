"""What a decoder of the Llama family looks like, read from config.json or from GGUF metadata.

Llama; Mistral, a Llama whose queries may see only a window of positions; Ministral, whose layers differ in that; Qwen2, a
Llama with biases, which are seen from the weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo_worker.errors import ModelError
from octavo_worker.rope import Rope
from octavo_worker.rope_config import rope_from_gguf, rope_from_huggingface, rope_to_huggingface

FULL, SLIDING = "full_attention", "sliding_attention"

MOST, MOST_CONTEXT, MOST_LAYERS = (1 << 31) - 1, 1 << 26, 1 << 12
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
    windows: tuple[int, ...]  # of each layer: positions that a query sees, its own included; 0: all before it

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
        """What `from_huggingface` reads again, but for Llama 3's rope scaling, whose frequencies are kept elsewhere."""
        window = max(self.windows)
        kind = {"architectures": [MISTRAL], "model_type": "mistral", "sliding_window": window}
        return {
            **(kind if window else {"architectures": [LLAMA], "model_type": "llama"}),
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
            **rope_to_huggingface(self.rope),
        }


LLAMA, MISTRAL, MINISTRAL, QWEN2 = SUPPORTED = tuple(
    f"{name}ForCausalLM" for name in ("Llama", "Mistral", "Ministral", "Qwen2")
)
UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "mlp_bias": (False,),
    "partial_rotary_factor": (1,),
    "num_local_experts": (0, 1),
    "num_experts": (0, 1),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "attention_multiplier": (),
    "attention_chunk_size": (),
    "no_rope_layers": (),
    "qk_layernorm": (False,),
    "use_qk_norm": (False,),
}
"""Keys of config.json that would change what is computed, and with which values they do not; null never does."""


def from_huggingface(config: Mapping[str, Any]) -> Architecture:
    """Raises ModelError for anything but a decoder of the Llama family that is computed exactly here."""
    names = config.get("architectures") or [str(config.get("model_type", "unknown"))]
    if not isinstance(names, list):
        raise ModelError("config.json has architectures that are no list")
    if len(names) != 1 or names[0] not in SUPPORTED:
        raise ModelError(
            f"architecture {', '.join(map(str, names))} is not supported; {', '.join(SUPPORTED[:-1])} and {QWEN2} are"
        )
    for key, neutral in UNSUPPORTED.items():
        if config.get(key) not in (None, *neutral):
            raise ModelError(f"config.json has {key} = {config[key]}, which this decoder does not compute")
    try:
        if config["hidden_act"] != "silu":
            raise ModelError(f"only SiLU is supported in the feed-forward part, not {config['hidden_act']}")
        heads, hidden, layers = (int(config[f]) for f in ("num_attention_heads", "hidden_size", "num_hidden_layers"))
        check_layers(layers)
        return Architecture(
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            intermediate=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            eps=float(config["rms_norm_eps"]),
            max_context=int(config["max_position_embeddings"]),
            rope=rope_from_huggingface(config),
            windows=windows_of(names[0], config, layers),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise ModelError(f"config.json lacks a value or has a bad one: {error}") from error


def check_layers(layers: int) -> None:
    """Raises ModelError for a number of which nobody should begin to make a list."""
    if not 1 <= layers <= MOST_LAYERS:
        raise ModelError(f"the model has {layers} layers; 1 to {MOST_LAYERS} can be")


def windows_of(name: str, config: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Positions that each layer's queries see; 0: all before them."""
    window = int(config.get("sliding_window") or 0)
    if window < 0:
        raise ValueError(f"sliding_window {window}")
    if name == LLAMA and window:
        raise ModelError(f"config.json has sliding_window = {window}, which a {LLAMA} does not have; a {MISTRAL} has")
    slides_from = 0  # the first layer that does, unless they are listed
    if name == QWEN2:
        window = window if config.get("use_sliding_window") else 0
        slides_from = int(config["max_window_layers"]) if window else layers
    kinds = [SLIDING if window and index >= slides_from else FULL for index in range(layers)]
    listed = config.get("layer_types") or kinds
    if len(listed) != layers or not {*listed} <= {SLIDING, FULL} or (SLIDING in listed and not window):
        raise ModelError(
            f"config.json has layer_types that do not fit {layers} layers and a sliding window of {window}"
        )
    if name in (LLAMA, MISTRAL) and listed != kinds:
        raise ModelError(f"a {name} has layers of one type; one with several layer_types is a {MINISTRAL}")
    return tuple(window if kind == SLIDING else 0 for kind in listed)


def from_gguf(metadata: Mapping[str, Any], vocab: int) -> Architecture:
    """Raises ModelError for anything but general.architecture = llama. `vocab`: rows of the embedding."""
    name = metadata.get("general.architecture")
    if name != "llama":
        raise ModelError(f"GGUF architecture {name!r} is not supported; 'llama' is")
    if metadata.get("llama.expert_count"):
        raise ModelError("GGUF models with experts are not supported")
    try:
        heads, hidden = int(metadata["llama.attention.head_count"]), int(metadata["llama.embedding_length"])
        layers = int(metadata["llama.block_count"])
        check_layers(layers)
        head_dim = int(metadata.get("llama.attention.key_length", hidden // heads))
        if int(metadata.get("llama.rope.dimension_count", head_dim)) != head_dim:
            raise ModelError("GGUF models that rotate only a part of each head are not supported")
        return Architecture(
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=int(metadata.get("llama.attention.head_count_kv", heads)),
            head_dim=head_dim,
            intermediate=int(metadata["llama.feed_forward_length"]),
            vocab=vocab,
            eps=float(metadata["llama.attention.layer_norm_rms_epsilon"]),
            max_context=int(metadata["llama.context_length"]),
            rope=rope_from_gguf(metadata),
            windows=(int(metadata.get("llama.attention.sliding_window") or 0),) * layers,
        )
    except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise ModelError(f"the GGUF metadata lacks a value or has a bad one: {error}") from error
