"""Shared by all tests: figures that a test counted are printed at the end of the run, also when everything passes."""

import os
from collections.abc import Callable

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when a kernel is defined

FIGURES: list[str] = []


@pytest.fixture
def figure() -> Callable[[str], None]:
    """Call it with a line to have it printed in the run's summary."""
    return FIGURES.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("figures")
        for line in FIGURES:
            terminalreporter.line(line)
