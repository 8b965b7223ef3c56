"""`make foreign`: runs every foreign client, prints {passed, failed, skipped, clients} and writes docs/clients.md.

What a cell says is what a test asserted, in this run. Clients that were skipped are listed with the reason.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree.ElementTree import Element, parse

from tests.layout.tree import ROOT

DOCUMENT = ROOT / "docs" / "clients.md"
BEGIN, END = "<!-- matrix -->", "<!-- end of matrix -->"
COLUMNS = ("text", "deadline", "cancel", "error", "TLS and token")
PREFIX = "client"

Clients = dict[str, tuple[str, set[str]]]
"""Name to version and what was asserted."""


def outcome(case: Element) -> str:
    kinds = {"failure": "failed", "error": "failed", "skipped": "skipped"}
    return next((kinds[child.tag] for child in case if child.tag in kinds), "passed")


def clients_of(cases: Iterable[Element]) -> Clients:
    """From the notes that passing tests took."""
    clients: Clients = {}
    for case in cases:
        for note in case.iter("property"):
            if note.get("name") == PREFIX and outcome(case) == "passed":
                name, version, asserted = (note.get("value") or "").split("\t")
                clients.setdefault(name, (version, set()))[1].add(asserted)
    return clients


def table(clients: Clients, today: str, skipped: Iterable[str]) -> str:
    """The matrix as Markdown."""
    head = f"Run of {today}.\n\n| client | version | {' | '.join(COLUMNS)} | besides |\n|---|---|{'---|' * 6}\n"
    rows = []
    for name, (version, asserted) in sorted(clients.items()):
        cells = ["yes" if column in asserted else "" for column in COLUMNS]
        besides = ", ".join(sorted(asserted.difference(COLUMNS)))
        rows.append(f"| {' | '.join([name, version, *cells, besides])} |\n")
    reasons = "".join(f"\nNot run: {reason}\n" for reason in sorted(set(skipped)))
    return f"{BEGIN}\n{head}{''.join(rows)}{reasons}{END}\n"


def with_table(document: str, matrix: str) -> str:
    before, _, rest = document.partition(BEGIN)
    return f"{before}{matrix}\n{rest.partition(END)[2].lstrip()}"


def main() -> int:
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "tests/foreign", "-m", "on_demand or not on_demand"]
        ended = subprocess.run([*command, f"--junitxml={report}", "-o", "junit_family=xunit1"], cwd=ROOT)
        cases = list(parse(report).getroot().iter("testcase"))
    outcomes = [outcome(case) for case in cases]
    clients = clients_of(cases)
    skipped = [each.get("message") or "" for case in cases for each in case.iter("skipped")]
    figures: dict[str, Any] = {kind: outcomes.count(kind) for kind in ("passed", "failed", "skipped")}
    figures["clients"] = {name: version for name, (version, _) in sorted(clients.items())}
    if ended.returncode == 0:
        matrix = table(clients, date.today().isoformat(), skipped)
        DOCUMENT.write_text(with_table(DOCUMENT.read_text(), matrix))
    print(json.dumps(figures))
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
