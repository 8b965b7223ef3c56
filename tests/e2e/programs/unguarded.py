"""A program that starts its engine whenever it is imported: workers that look for its class import it."""

import sys

from octavo_client import LLM


class CustomAttention:
    """Never called."""

    def forward(self) -> None: ...


LLM(model=sys.argv[1], attention_class=CustomAttention)
