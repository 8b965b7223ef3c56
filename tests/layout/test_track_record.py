"""docs/track-record.md and the tests agree: every case has a test or a reason, every test named after a case is listed."""

import ast
import re
from collections.abc import Iterator

from tests.layout.tree import ROOT, Source, sources

DOCUMENT = ROOT / "docs" / "track-record.md"
KINDS = [
    "page-accounting",
    "prefix-cache",
    "preemption-swap",
    "chunked-prefill",
    "parallel-sampling",
    "fairness-liveness",
    "request-identity",
    "clock",
    "cancel-abort",
    "limits-context",
    "event-loop",
    "drain-upgrade",
    "engine-crash-isolation",
    "zmq-transport",
    "grpc",
    "weights-loading",
    "model-file-security",
    "numerics",
    "rope",
    "sliding-window",
    "detokenisation",
    "stop-eos",
    "tokenizer-template",
    "sampling-params",
    "structured-output",
]
CASE = re.compile(r"[A-Z]{2}\d{2}")
TEST = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")
REASON = "Cannot occur"


def section(text: str, kind: str) -> str:
    """What stands under a heading of the second level, up to the next; nothing when there is no such heading."""
    return text.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]


def rows(text: str) -> dict[str, str]:
    """The last cell of each row of a table whose first cell is a case."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return {row[0]: row[-1] for row in cells if CASE.fullmatch(row[0])}


def promised(text: str) -> set[str]:
    """The cases that a section says its kind has."""
    return set(CASE.findall(re.search(r"^Cases: (.*)$", text, re.MULTILINE)[1]))  # type: ignore[index]


def named_tests(source: Source) -> Iterator[tuple[str, str]]:
    """Case and test, for each test that has cases in its name."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            cases = re.match(rf"test_((?:{CASE.pattern}_)*)", node.name)
            for case in CASE.findall(cases[1]) if cases else ():
                yield case, f"{source.module.replace('.', '/')}.py::{node.name}"


def complaints(text: str, tests: set[tuple[str, str]]) -> list[str]:
    """Where a document with these sections and these tests disagree."""
    found = []
    for kind in KINDS:
        cells = rows(section(text, kind))
        found += [f"{case} has no row" for case in sorted(promised(section(text, kind)) - set(cells))]
        found += [f"{case} has neither test nor reason" for case, cell in cells.items() if not _is_settled(cell)]
    listed = {(case, test) for case, cell in rows(text).items() for test in TEST.findall(cell)}
    found += [f"{case}: there is no {test}" for case, test in sorted(listed - tests)]
    return found + [f"{case}: {test} is not listed" for case, test in sorted(tests - listed)]


def _is_settled(cell: str) -> bool:
    return bool(TEST.search(cell)) or cell.startswith(REASON)


def test_every_case_has_a_test_or_a_reason_and_every_test_of_a_case_is_listed() -> None:
    tests = {found for source in sources() if source.module.startswith("tests.") for found in named_tests(source)}
    assert complaints(DOCUMENT.read_text(), tests) == []


def example(*lines: str) -> str:
    empty = "".join(f"\n## {kind}\n\nCases: none\n" for kind in KINDS if kind != "clock")
    return "\n".join((f"# Title\n{empty}\n## clock\n", *lines, ""))


def test_every_way_to_disagree_is_found() -> None:
    head, test = "Cases: CK01 CK02", "tests/test_a.py::test_CK01_CK02_both"
    one, two = f"| CK01 | what | `{test}` |", f"| CK02 | what | `{test}` |"
    tests = {("CK01", test), ("CK02", test)}
    assert complaints(example(head, one, two), tests) == []
    assert complaints(example(head, one, "| CK02 | what | Cannot occur: no clock |"), {("CK01", test)}) == []
    assert complaints(example(head, one), {("CK01", test)}) == ["CK02 has no row"]
    assert complaints(example(head, one, "| CK02 | what | later |"), {("CK01", test)}) == [
        "CK02 has neither test nor reason"
    ]
    assert complaints(example(head, one, two), {("CK01", test)}) == [f"CK02: there is no {test}"]
    assert complaints(example(head, one, "| CK02 | what | Cannot occur |"), tests) == [f"CK02: {test} is not listed"]


def test_cases_are_read_from_the_head_of_a_name() -> None:
    text = "def test_CK01_CK02_both(): ...\nasync def test_PG01_one(): ...\ndef test_of_CK02(): ...\ndef helps(): ..."
    name = "tests/a/test_b.py::test_CK01_CK02_both"
    assert list(named_tests(Source("tests.a.test_b", text))) == [
        ("CK01", name),
        ("CK02", name),
        ("PG01", "tests/a/test_b.py::test_PG01_one"),
    ]
