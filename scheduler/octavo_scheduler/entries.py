"""Entries of a model's JSON files, checked as they are read."""

from pathlib import Path
from typing import Any, NoReturn

from octavo_scheduler.errors import StartError
from octavo_scheduler.limits import MAX_ECHO


class Entries:
    """Raises StartError, which names file and entry, for what has the wrong type or range. null means left out."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self._path = path
        self._content = content

    def size(self, name: str, most: int) -> int:
        """A whole number from 1 that has to be there."""
        value = self.whole_number(name, (1, most))
        if value is None:
            raise StartError(f"{self._path} lacks '{name}'")
        return value

    def whole_number(self, name: str, span: tuple[int, int]) -> int | None:
        value: int | None = self._content.get(name)
        if value is not None and not _is_whole(value, span):
            self.refuse(name, f"a whole number in [{span[0]}, {span[1]}]")
        return value

    def number(self, name: str, span: tuple[float, float]) -> float | None:
        value: float | None = self._content.get(name)
        if value is not None and not (type(value) in (int, float) and span[0] <= value <= span[1]):
            self.refuse(name, f"a number in [{span[0]}, {span[1]}]")
        return value

    def flag(self, name: str) -> bool:
        """False where it is left out."""
        value = self._content.get(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, "true or false")
        return bool(value)

    def token_ids(self, name: str, vocab_size: int) -> frozenset[int] | None:
        """One token id or a list of them."""
        value = self._content.get(name)
        if value is None:
            return None
        ids: list[int] = value if isinstance(value, list) else [value]
        if not all(_is_whole(token, (0, vocab_size - 1)) for token in ids):
            self.refuse(name, f"ids of the vocabulary of {vocab_size} tokens")
        return frozenset(ids)

    def refuse(self, name: str, wanted: str) -> NoReturn:
        value = repr(self._content[name])[:MAX_ECHO]
        raise StartError(f"{self._path} has {value} as {name}; it must be {wanted}")


def _is_whole(value: object, span: tuple[int, int]) -> bool:
    return type(value) is int and span[0] <= value <= span[1]  # True is an int, too, but not a number
