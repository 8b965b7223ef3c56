"""Shared by all tests: figures that a test counted are printed at the end of the run, also when everything passes.

Tests run in several processes (pytest-xdist), each a file at a time; figures travel to the one that prints.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when a kernel is defined
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what it starts in the background ignore Ctrl-C

FIGURES: list[str] = []


@pytest.fixture
def figure() -> Callable[[str], None]:
    """Call it with a line to have it printed in the run's summary."""
    return FIGURES.append


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["figures"] = FIGURES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    FIGURES.extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("figures")
        for line in FIGURES:
            terminalreporter.line(line)
