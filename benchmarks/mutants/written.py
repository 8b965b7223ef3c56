"""Mutants that somebody thought of, from `written.txt`, and the reasons for survivors, from `explained.txt`."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.mutants.rules import PACKAGE, Mutant, difference, module_name

HERE = Path(__file__).parent


def blocks(name: str) -> Iterator[tuple[str, list[str]]]:
    """Heading and lines of each block of a text file here. What comes before the first heading is for the reader."""
    for block in (HERE / name).read_text().split("\n## ")[1:]:
        heading, *lines = block.rstrip("\n").split("\n")
        yield heading, lines


def written() -> list[Mutant]:
    """Raises ValueError when a source no longer has the lines that a mistake takes the place of."""
    mutants = []
    for heading, lines in blocks("written.txt"):
        file, _, wrong = heading.partition(": ")
        path = PACKAGE / file
        text = "\n" + path.read_text()
        old = "\n" + "".join(line[1:] + "\n" for line in lines if not line.startswith("+"))
        new = "\n" + "".join(line[1:] + "\n" for line in lines if not line.startswith("-"))
        if text.count(old) != 1:
            raise ValueError(
                f"{file} has {text.count(old)} places for the mistake {wrong!r}; say anew where it is made"
            )
        source, number = text.replace(old, new)[1:], text[: text.index(old)].count("\n") + 1
        name = f"{path.name}:{number} {wrong}"
        mutants.append(Mutant(name, module_name(path), number, difference(text[1:], source), source, False))
    return mutants


def explained() -> dict[tuple[str, str], str]:
    """Why a survivor behaves like the original in all that the scheduler promises, by module and difference."""
    found = {}
    for heading, lines in blocks("explained.txt"):
        changed = "\n".join(line for line in lines if line.startswith(("-", "+")))
        found[heading, changed] = " ".join(line[2:] for line in lines if line.startswith("> "))
    return found
