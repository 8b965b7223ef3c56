"""Stop strings in a stream of text."""

from collections.abc import Sequence


class StopScanner:
    """Finds the stop string that ends first, of those that end together the longest: so does every split of the text.

    Holds back only a suffix that is a proper prefix of a stop string.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._stops = tuple(stops)
        self._most_held = max(map(len, stops), default=1) - 1
        self._include = include
        self._held = ""

    def push(self, text: str, *, is_early: bool = False) -> tuple[str, str | None]:
        """(text that may be shown, the stop string found or None). After a find nothing more may be pushed.

        Stop strings that end in text that `is_early` are not looked for.
        """
        text = self._held + text
        stops = () if is_early else self._stops
        found = min(
            ((place + len(stop), place, stop) for stop in stops if (place := text.find(stop)) >= 0), default=None
        )
        if found is not None:
            self._held = ""
            end, place, stop = found
            return text[: end if self._include else place], stop
        keep = self._possible_start(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], None

    def flush(self) -> str:
        """The answer ended otherwise: what was held back is text after all."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, text: str) -> int:
        """Length of the longest suffix of `text` that is a proper prefix of a stop string."""
        for length in range(min(self._most_held, len(text)), 0, -1):
            if any(len(stop) > length and stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
