"""What a plan may name."""

from dataclasses import dataclass

MOST_BIASES = 2048
"""Of a slot."""
MOST_PROMPT_SCORES = 64
"""Prompt tokens of one step whose log-probabilities are told. A row of logits is kept for each: these bound the memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one worker, as its Hello says them."""

    device_pages: int
    host_pages: int
    page_size: int
    max_step_tokens: int
    vocab_size: int
