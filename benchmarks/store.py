"""Results of a long measurement, kept so that a run that was interrupted goes on where it was."""

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROBLEM = "problem"
SOURCES = ("benchmarks", "kernels", "worker", "scheduler", "client", "protos/octavo")
SUFFIXES = {".py", ".c", ".h"}

Entry = dict[str, Any]


class Store:
    """Entries by name, one line of JSON each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.entries: dict[str, Entry] = dict(map(json.loads, lines))

    def get(self, name: str, make: Callable[[], Entry]) -> Entry:
        """The entry of that name, made if it is missing. One with a PROBLEM is made again."""
        if name not in self.entries or PROBLEM in self.entries[name]:
            self.entries[name] = make()
            with self.path.open("a") as file:
                file.write(json.dumps([name, self.entries[name]]) + "\n")
        return self.entries[name]

    def remove(self) -> None:
        """All is done: the next run starts anew."""
        self.path.unlink(missing_ok=True)


def digest(*settings: object, folders: Iterable[str] = SOURCES) -> str:
    """Of the sources that a measurement depends on, those in `folders`, and of these settings."""
    found = sha256(repr(settings).encode())
    for file in source_files(folders):
        found.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def source_files(folders: Iterable[str] = SOURCES) -> Iterable[Path]:
    """In a fixed order."""
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*") if file.suffix in SUFFIXES)
