"""A Llama of half a megabyte in the shape of a Hugging Face folder: random weights, byte-level tokenizer, template.

Token ids: 0 `<|endoftext|>`, 1 `<|im_start|>`, 2 `<|im_end|>` (end of answer), then the 256 bytes, then merges. Every
id below `vocab` is a token, so whatever the model says can be detokenised. Needs numpy, safetensors and tokenizers.
"""

import json
import math
from itertools import chain, product
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END_OF_TEXT, TURN_START, TURN_END = SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_TOKEN_ID = 2
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORDS = ["the", "and", "ing", "you", "are", "with", "have", "this", "that", "user", "assistant", "system"]


def make_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    intermediate: int = 128,
    vocab: int = 320,
    tie: bool = True,
    max_context: int = 4096,
) -> Path:
    """Write the folder (made if missing) and return it. The same arguments give the same bytes."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
        "tie_word_embeddings": tie,
        "max_position_embeddings": max_context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": EOS_TOKEN_ID,
        "torch_dtype": "float32",
    }
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": EOS_TOKEN_ID})
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": TURN_START,
            "eos_token": TURN_END,
            "pad_token": END_OF_TEXT,
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "model_max_length": max_context,
        },
    )
    tiny_tokenizer(vocab).save(str(folder / "tokenizer.json"))
    save_file(
        tiny_weights(seed, hidden, layers, heads * head_dim, kv_heads * head_dim, intermediate, vocab, tie),
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    return folder


def write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def tiny_tokenizer(vocab: int) -> Tokenizer:
    """A byte-level BPE of exactly `vocab` tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL_TOKENS, *alphabet]
    words = [["Ġ", *word] for word in WORDS]
    wanted = chain(*words_to_pairs(words), product(ascii_lowercase, repeat=2))
    merges: list[tuple[str, str]] = []
    known = set(tokens)
    for left, right in wanted:
        if len(tokens) == vocab:
            break
        if left + right not in known:
            merges.append((left, right))
            tokens.append(left + right)
            known.add(left + right)
    if len(tokens) != vocab:
        raise ValueError(f"a tiny vocabulary has {len(SPECIAL_TOKENS) + 256} to 1,000 tokens or so, not {vocab}")
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return tokenizer


def words_to_pairs(words: list[list[str]]) -> list[list[tuple[str, str]]]:
    """For each word the merges that build it from the left: t h, th e."""
    return [[("".join(word[:i]), word[i]) for i in range(1, len(word))] for word in words]


def tiny_weights(
    seed: int, hidden: int, layers: int, q_width: int, kv_width: int, intermediate: int, vocab: int, tie: bool
) -> dict[str, np.ndarray]:
    """Weights in Hugging Face's names. What layers add outweighs the embedding, else a tied head repeats its input."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, gain: float) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * gain / math.sqrt(columns)).astype(np.float32)

    def norm() -> np.ndarray:
        return rng.uniform(0.8, 1.2, hidden).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(vocab, hidden, 4.0), "model.norm.weight": norm()}
    if not tie:
        weights["lm_head.weight"] = matrix(vocab, hidden, 4.0)
    for i in range(layers):
        prefix = f"model.layers.{i}."
        weights |= {
            prefix + "input_layernorm.weight": norm(),
            prefix + "self_attn.q_proj.weight": matrix(q_width, hidden, 1.5),
            prefix + "self_attn.k_proj.weight": matrix(kv_width, hidden, 1.5),
            prefix + "self_attn.v_proj.weight": matrix(kv_width, hidden, 2.0),
            prefix + "self_attn.o_proj.weight": matrix(hidden, q_width, 3.0),
            prefix + "post_attention_layernorm.weight": norm(),
            prefix + "mlp.gate_proj.weight": matrix(intermediate, hidden, 2.0),
            prefix + "mlp.up_proj.weight": matrix(intermediate, hidden, 2.0),
            prefix + "mlp.down_proj.weight": matrix(hidden, intermediate, 2.0),
        }
    return weights
