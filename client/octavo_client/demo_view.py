"""Answers side by side: panels that grow in place on a terminal, numbered lines everywhere else."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, TextIO

from rich.cells import cell_len, chop_cells
from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

PANEL_WIDTH = 40
PANEL_HEIGHTS = (4, 14)
LINE_WIDTH = 72


class View(Protocol):
    """Where answers appear. `number` counts prompts from 0."""

    def running(self) -> AbstractContextManager[object]:
        """Returns the context in which answers may be shown."""

    def append(self, number: int, text: str) -> None:
        """Shows more text of an answer."""

    def finish(self, number: int, remark: str) -> None:
        """Marks an answer as ended."""


def pick_view(titles: Sequence[str]) -> View:
    """Returns panels if stdout is a terminal, else lines."""
    console = Console()
    return PanelView(titles, console) if console.is_terminal else LineView(titles, sys.stdout)


class PanelView:
    """One panel for each prompt, as many beside each other as fit; a full panel shows the end of its text."""

    def __init__(self, titles: Sequence[str], console: Console) -> None:
        self._titles = titles
        self._console = console
        self._texts = [""] * len(titles)
        self._remarks = ["…"] * len(titles)

    def running(self) -> AbstractContextManager[object]:
        return self._growing()

    @contextmanager
    def _growing(self) -> Iterator[None]:
        """Panels while the answers grow; then every answer in full, below one another."""
        with Live(get_renderable=self.render, console=self._console, refresh_per_second=10, transient=True):
            yield
        for number, title in enumerate(self._titles):
            body = Text(self._texts[number].strip())
            self._console.print(
                Panel(body, title=Text(f"{number + 1} · {title}"), subtitle=Text(self._remarks[number]))
            )

    def append(self, number: int, text: str) -> None:
        self._texts[number] += text

    def finish(self, number: int, remark: str) -> None:
        self._remarks[number] = remark

    def render(self) -> RenderableType:
        """Returns all panels as they are now."""
        num_columns = max(1, min(len(self._titles), self._console.width // PANEL_WIDTH))
        num_rows = -(-len(self._titles) // num_columns)
        width = self._console.width // num_columns
        least, most = PANEL_HEIGHTS
        height = max(least, min(most, (self._console.height - 1) // num_rows))
        panels = [self._panel(number, width, height) for number in range(len(self._titles))]
        grid = Table.grid()
        for start in range(0, len(panels), num_columns):
            grid.add_row(*panels[start : start + num_columns])
        return grid

    def _panel(self, number: int, width: int, height: int) -> Panel:
        inner_width, inner_height = width - 4, height - 2
        lines = Text(self._texts[number].strip()).wrap(self._console, inner_width)[-inner_height:]
        title = Text(f"{number + 1} · {self._titles[number]}")
        title.truncate(inner_width - 2, overflow="ellipsis")
        subtitle = Text(self._remarks[number])
        return Panel(Text("\n").join(lines), title=title, subtitle=subtitle, width=width, height=height)


class LineView:
    """Lines like `[2] text`, each written and flushed as soon as it is full or its answer ends."""

    def __init__(self, titles: Sequence[str], out: TextIO) -> None:
        self._titles = titles
        self._out = out
        self._rests = [""] * len(titles)

    def running(self) -> AbstractContextManager[object]:
        for number, title in enumerate(self._titles):
            self._write(number, f"» {title}")
        return nullcontext()

    def append(self, number: int, text: str) -> None:
        *lines, rest = (self._rests[number] + text).split("\n")
        while cell_len(rest) > LINE_WIDTH:
            line, rest = _cut(rest)
            lines.append(line)
        self._rests[number] = rest
        for line in filter(str.strip, lines):
            self._write(number, line)

    def finish(self, number: int, remark: str) -> None:
        if self._rests[number].strip():
            self._write(number, self._rests[number])
        self._rests[number] = ""
        self._write(number, f"« {remark}")

    def _write(self, number: int, line: str) -> None:
        print(f"[{number + 1}] {line}", file=self._out, flush=True)


def _cut(text: str) -> tuple[str, str]:
    """Cuts off one line: at its last space, or where it is full in a script that writes no spaces."""
    full = chop_cells(text, LINE_WIDTH)[0]
    end = full.rfind(" ") if " " in full else len(full)
    return text[:end], text[end:].lstrip(" ")
