"""What the documentation says to type."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```$", re.DOTALL | re.MULTILINE)
REDIRECTION = re.compile(r"(?<=\s)\d?(?:>>?|<)&?\s*\S+")
SHELL = ("", "sh", "bash", "console")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text.strip().splitlines()[0] if self.text.strip() else ''}"


def blocks(page: Path) -> list[Block]:
    return [Block(page, match[1], match[2]) for match in FENCE.finditer(page.read_text())]


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command of a shell block, in order, also of those inside `$(…)`."""
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        yield from commands_of(line)


def commands_of(line: str) -> Iterator[list[str]]:
    """Without variables that are set for one command, and without redirections."""
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from commands_of(inner)
    plain = re.sub(r"\$\([^()]*\)", "SUBSTITUTED", line)
    lexer = shlex.shlex(REDIRECTION.sub(" ", plain), posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "#", True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("();|&<>"):
            yield from [words] if words else []
            words = []
        elif words or not re.match(r"^\w+=", word):
            words.append(word)
