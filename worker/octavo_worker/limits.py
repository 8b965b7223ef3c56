"""What a plan may name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one worker, as its Hello says them."""

    device_pages: int
    host_pages: int
    page_size: int
    max_step_tokens: int
    vocab_size: int
