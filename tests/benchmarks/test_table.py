"""Tables for terminals."""

from benchmarks.table import NOTHING, cell_text, table


def test_names_stand_left_and_figures_right() -> None:
    assert table(["engine", "W"], [["octavo", 1234.5], ["b", None]]).split("\n") == [
        "engine      W",
        "──────  ─────",
        "octavo  1,234",
        f"b           {NOTHING}",
    ]


def test_a_figure_has_about_three_digits() -> None:
    assert [cell_text(value) for value in (1234.5, 99.96, 12.34, 1.234, 0.0)] == [
        "1,234",
        "100.0",
        "12.3",
        "1.23",
        "0.00",
    ]
