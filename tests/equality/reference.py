"""Greedy answers of transformers in float32, each prompt alone, with the gap between the top two logits at every step."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

NEAR_TIE = 2e-3
"""Top two logits closer than this may swap places between two correct float32 implementations."""


@dataclass(frozen=True)
class Answer:
    """Token ids, and per token how far the best logit was above the second."""

    ids: list[int]
    gaps: list[float]


class Reference:
    def __init__(self, model: Path) -> None:
        from transformers import AutoModelForCausalLM

        where: dict[str, Any] = (
            {"pretrained_model_name_or_path": model}
            if model.is_dir()
            else {"pretrained_model_name_or_path": model.parent, "gguf_file": model.name}
        )
        self.model: Any = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
        self.model.eval()

    @torch.inference_mode()
    def answer(self, prompt: Sequence[int], num_tokens: int) -> Answer:
        output = self.model(torch.tensor([list(prompt)]), use_cache=True, logits_to_keep=1)
        ids: list[int] = []
        gaps: list[float] = []
        while True:
            top = output.logits[0, -1].float().topk(2)
            ids.append(int(top.indices[0]))
            gaps.append(float(top.values[0] - top.values[1]))
            if len(ids) == num_tokens:
                return Answer(ids, gaps)
            output = self.model(torch.tensor([ids[-1:]]), past_key_values=output.past_key_values, use_cache=True)


def compare(expected: Sequence[Answer], found: Sequence[Sequence[int]]) -> int:
    """Answers that leave the reference at a near-tie (what follows is not compared). Fails at any other place."""
    num_ties = 0
    for number, (answer, ids) in enumerate(zip(expected, found, strict=True)):
        assert len(ids) == len(answer.ids)
        for place, (theirs, ours) in enumerate(zip(answer.ids, ids, strict=True)):
            if theirs != ours:
                gap = answer.gaps[place]
                assert gap < NEAR_TIE, f"prompt {number}, token {place}: {ours} for {theirs}, logits {gap} apart"
                num_ties += 1
                break
    return num_ties
