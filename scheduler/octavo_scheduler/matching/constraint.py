"""What a client asked of its answer."""

from typing import NamedTuple


class Constraint(NamedTuple):
    """`kind`: "json_schema", "regex" or "grammar" (Lark syntax)."""

    kind: str
    text: str


def one_of(texts: list[str]) -> Constraint:
    """Any of these, as a regular expression in which nothing but the bar means anything."""
    return Constraint("regex", "|".join("".join(f"\\x{{{ord(letter):x}}}" for letter in text) for text in texts))
