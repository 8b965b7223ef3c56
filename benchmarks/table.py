"""Figures as lines of text."""

from collections.abc import Sequence

Cell = str | float | None
NOTHING = "–"


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table for a terminal: the first column to the left, the others to the right; None is a dash."""
    lines = [list(header), *([cell_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["─" * width for width in widths])
    return "\n".join("  ".join(_aligned(line, widths)).rstrip() for line in lines)


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    name, *others = zip(line, widths, strict=True)
    return [name[0].ljust(name[1]), *(text.rjust(width) for text, width in others)]


def cell_text(cell: Cell) -> str:
    """A float gets about three digits."""
    if cell is None:
        return NOTHING
    if isinstance(cell, str):
        return cell
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table for a page: numbers and all else as they are."""
    lines = [list(header), ["---"] * len(header), *([cell_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
