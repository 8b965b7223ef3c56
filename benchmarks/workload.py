"""Workload W, on which Octavo and its peers are measured: token ids, so that no tokenizer differs.

64 requests at once, prompts of 32 to 512 tokens (13,728 in all), answers of 32 to 192 tokens (5,696 in all), greedy, end of
sequence ignored.
"""

import random
from typing import NamedTuple

PROMPT_LENGTHS = (32, 64, 128, 256, 512)
ANSWER_LENGTHS = (32, 64, 128, 192)


class Work(NamedTuple):
    """One request: prompt token ids, and how many tokens to generate."""

    prompt: list[int]
    num_tokens: int


def workload(count: int = 64, seed: int = 0) -> list[Work]:
    """The same requests for the same arguments. Token ids lie in [100, 49000)."""
    draw = random.Random(seed)
    prompt_lengths = [draw.choice(PROMPT_LENGTHS) for _ in range(count)]
    answer_lengths = [draw.choice(ANSWER_LENGTHS) for _ in range(count)]
    prompts = [[draw.randrange(100, 49000) for _ in range(length)] for length in prompt_lengths]
    return [Work(prompt, answer) for prompt, answer in zip(prompts, answer_lengths, strict=True)]


def long_prompt(length: int, seed: int) -> Work:
    """One of which a single token is asked. Those of different seeds have nothing in common."""
    draw = random.Random(f"long prompt {seed}")
    return Work([draw.randrange(100, 49000) for _ in range(length)], 1)
