"""Words of others in a terminal."""

from rich.text import Text


def cell(words: str) -> Text:
    """The words as they are, without markup; what would steer the terminal is spelt out."""
    return Text(words if words.isprintable() else ascii(words))
