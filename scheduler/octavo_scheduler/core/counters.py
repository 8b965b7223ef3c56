"""What the core counts."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Totals since start."""

    accepted: int = 0
    refused: int = 0
    ended: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    drops: int = 0
    swaps: int = 0
    stale_messages: int = 0
    workers_lost: int = 0
    audit_violations: int = 0
    """Laws of the page ledger that the auditor found broken, and mended."""
