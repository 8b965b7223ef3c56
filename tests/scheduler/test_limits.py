"""The table of limits in docs/security.md is that of the code."""

import re

from octavo_scheduler import limits

from tests.layout.tree import ROOT

ROW = re.compile(r"^\| `([A-Z_]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)


def shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"{value[0]:g} to {value[1]:,g}"
    return f"{value:,}"


def test_the_documented_limits_are_those_of_the_code() -> None:
    documented = {name: value for name, value, _ in ROW.findall((ROOT / "docs" / "security.md").read_text())}
    assert documented == {name: shown(value) for name, value in vars(limits).items() if name.isupper()}


def test_the_tests_that_the_document_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "docs" / "security.md").read_text())
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
