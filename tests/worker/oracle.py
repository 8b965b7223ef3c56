"""What transformers says of a model."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor


def load_oracle(path: Path) -> Any:
    """A transformers model in float32, from a folder or a GGUF file."""
    where = {"gguf_file": path.name} if path.is_file() else {}
    folder = path.parent if path.is_file() else path
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **where)
    return model.eval()


@torch.inference_mode()
def greedy(model: Any, prompt: list[int], count: int, *, use_cache: bool = True) -> list[int]:
    """`use_cache` False: every token from the whole sequence."""
    ids = torch.tensor([prompt])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        use_cache=use_cache,
    )
    answer: list[int] = out[0, len(prompt) :].tolist()
    return answer


@torch.inference_mode()
def last_logits(model: Any, prompt: list[int]) -> Tensor:
    logits: Tensor = model(torch.tensor([prompt])).logits[0, -1]
    return logits
