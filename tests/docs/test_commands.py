"""Every command in the documentation is one that there is, with flags that there are."""

import argparse
import ast
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import octavo_client
import pytest
from octavo_client import SamplingParams, cli
from octavo_client.dialect import AnySettings
from octavo_client.llm import LLM
from octavo_client.programs import PROGRAMS

from tests.docs.pages import PAGES, ROOT, SHELL, Block, blocks, commands, commands_of

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
BLOCKS = [block for page in PAGES for block in blocks(page)]


class Parsed(Exception):
    """The flags were understood; nothing else shall happen."""


@pytest.fixture
def parses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        parse(self, args, namespace)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)


def understand(words: Sequence[str]) -> None:
    """Raises unless a command of ours is understood."""
    program, *rest = words
    if program == "make":
        unknown = [word for word in rest if "=" not in word and not word.startswith("-") and word not in TARGETS]
        assert unknown == [], f"make has no {unknown}"
    elif program.rpartition("/")[2] == "octavo":
        with pytest.raises(Parsed):
            become(rest)
    elif program.rpartition("/")[2].startswith("python") and rest[:1] == ["-m"] and rest[1].startswith("octavo"):
        module = rest[1] if "." in rest[1] else f"{rest[1]}.__main__"
        if hasattr(import_module(module), "main"):
            with pytest.raises(Parsed):
                import_module(module).main(rest[2:])


def become(words: Sequence[str]) -> None:
    if words and words[0] in PROGRAMS:
        name = PROGRAMS[words[0]][0]
        import_module(name if "." in name else f"{name}.__main__").main(list(words[1:]))
    else:
        cli.main(list(words))


def ours(words: Sequence[str]) -> bool:
    name = words[0].rpartition("/")[2]
    return name in ("make", "octavo") or (name.startswith("python") and words[1:2] == ["-m"])


def shell_commands() -> Iterator[Any]:
    for block in BLOCKS:
        if block.language in SHELL:
            for words in commands(block):
                if ours(words):
                    yield pytest.param(words, id=f"{block.page.name}: {' '.join(words)[:80]}")


@pytest.mark.parametrize("words", [*shell_commands()])
def test_a_command_in_the_documentation_is_understood(words: list[str], parses_only: None) -> None:
    understand(words)


def test_a_flag_that_there_is_not_would_be_found(parses_only: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        become(["status", "--jsno"])
    with pytest.raises(AssertionError, match="make has no"):
        understand(["make", "demoo"])


def test_commands_are_found_wherever_they_stand_in_a_line() -> None:
    line = 'A=1 octavo serve "a b" > log 2>&1 & sleep 1; x $(octavo status | grep y) && make demo  # octavo not'
    assert list(commands_of(line)) == [
        *(["octavo", "status"], ["grep", "y"], ["octavo", "serve", "a b"]),
        *(["sleep", "1"], ["x", "SUBSTITUTED"], ["make", "demo"]),
    ]


def python_blocks() -> Iterator[Any]:
    for block in BLOCKS:
        if block.language == "python":
            yield pytest.param(block, id=str(block)[:80])


@pytest.mark.parametrize("block", [*python_blocks()])
def test_python_in_the_documentation_names_only_what_there_is(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module == "octavo_client":
            assert [each.name for each in node.names if not hasattr(octavo_client, each.name)] == []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert {keyword.arg for keyword in node.keywords} <= KEYWORDS.get(
                node.func.id, {k.arg for k in node.keywords}
            )


ARGUMENTS = {*AnySettings.__annotations__, *LLM.__init__.__annotations__}
KEYWORDS: dict[str, set[str | None]] = {
    "LLM": {*ARGUMENTS},
    "EngineArgs": {*ARGUMENTS},
    "SamplingParams": {*SamplingParams.__annotations__},
}
"""What may be said to them by name."""
