"""What came of a load, in figures for people, for programs and for the eye."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from rich.table import Table

from octavo_client.demo_summary import Recording, inter_token_gaps, percentile

PERCENTS = (50, 90, 99)
WIDTH, HEIGHT, MARGIN = 420, 260, 46


@dataclass(frozen=True)
class Goal:
    """What a request must meet to count as good: seconds to its first token, and between two of its tokens on average."""

    first_token: float
    inter_token: float

    def is_met(self, recording: Recording) -> bool:
        if not recording.is_complete or not recording.arrivals:
            return False
        gaps = inter_token_gaps(recording.arrivals)
        average = sum(gaps) / len(gaps) if gaps else 0.0
        return recording.arrivals[0][0] - recording.started <= self.first_token and average <= self.inter_token


class Figures:
    """Of all recordings of one load; there is at least one."""

    def __init__(self, recordings: Sequence[Recording], goal: Goal) -> None:
        whole = [each for each in recordings if each.is_complete and each.arrivals]
        self.goal = goal
        self.requests, self.complete = len(recordings), len(whole)
        self.errors = [each.error for each in recordings if each.error is not None]
        self.first_token = sorted(each.arrivals[0][0] - each.started for each in whole)
        self.inter_token = sorted(gap for each in whole for gap in inter_token_gaps(each.arrivals))
        self.total = sorted(each.arrivals[-1][0] - each.started for each in whole)
        self.tokens = sum(count for each in recordings for _, count in each.arrivals)
        self.prompt_tokens = sum(each.prompt_tokens for each in whole)
        ends = [time for each in recordings for time, _ in each.arrivals]
        self.seconds = max(ends) - min(each.started for each in recordings) if ends else 0.0
        self.good = sum(goal.is_met(each) for each in recordings)

    def per_second(self, count: float) -> float:
        return count / self.seconds if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Times are in seconds; a percentile of nothing is null."""
        return {
            "requests": self.requests,
            "complete": self.complete,
            "errors": len(self.errors),
            "seconds": round(self.seconds, 3),
            "prompt_tokens": self.prompt_tokens,
            "answer_tokens": self.tokens,
            "tokens_per_second": round(self.per_second(self.tokens), 2),
            "requests_per_second": round(self.per_second(self.complete), 3),
            "goodput_per_second": round(self.per_second(self.good), 3),
            "goal": {"first_token": self.goal.first_token, "inter_token": self.goal.inter_token},
            "first_token": _percentiles(self.first_token),
            "inter_token": _percentiles(self.inter_token),
            "total": _percentiles(self.total),
        }

    def table(self) -> Table:
        found = self.as_json()
        table = Table(box=None, pad_edge=False)
        for title in ("", *(f"p{percent}" for percent in PERCENTS)):
            table.add_column(title, justify="right" if title else "left")
        for name, words in (
            ("first_token", "to the first token"),
            ("inter_token", "between tokens"),
            ("total", "to the end"),
        ):
            table.add_row(words, *(_shown(value) for value in found[name].values()))
        return table

    def legend(self) -> str:
        """What stands below the table, in one sentence."""
        found = self.as_json()
        ended = f"{self.complete} of {self.requests} requests ended well, in {self.seconds:.1f} s"
        speed = f"{found['tokens_per_second']:,.1f} tokens/s, {found['requests_per_second']:.2f} requests/s"
        goal = f"{found['goodput_per_second']:.2f} good ones/s (first token in {self.goal.first_token:g} s, then "
        return f"{ended}: {speed}; {goal}{self.goal.inter_token * 1000:g} ms a token)"

    def svg(self) -> str:
        """Two curves side by side: which share of requests had their first token, and of tokens came, by when."""
        curves = (("Time to the first token", self.first_token), ("Time between tokens", self.inter_token))
        parts = [_curve(title, values, number * WIDTH) for number, (title, values) in enumerate(curves)]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" '
            f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
        )


def _percentiles(ordered: Sequence[float]) -> dict[str, float | None]:
    return {f"p{percent}": round(percentile(ordered, percent), 4) if ordered else None for percent in PERCENTS}


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def _curve(title: str, ordered: Sequence[float], left: int) -> str:
    """A step at each value, from nothing to all; the last hundredth is cut off, which may be far away."""
    most = percentile(ordered, 99) or 1.0 if ordered else 1.0
    right, top, bottom = left + WIDTH - 16, 36, HEIGHT - MARGIN

    def at(value: float, share: float) -> str:
        x = left + MARGIN + (right - left - MARGIN) * min(value / most, 1.0)
        return f"{x:.1f},{bottom - (bottom - top) * share:.1f}"

    points = " ".join(at(percentile(ordered, percent), percent / 100) for percent in range(1, 100)) if ordered else ""
    text = [f'<text x="{left + MARGIN}" y="22" font-size="14">{escape(title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = bottom - (bottom - top) * share
        text.append(f'<line x1="{left + MARGIN}" x2="{right}" y1="{y}" y2="{y}" stroke="#ccc"/>')
        text.append(f'<text x="{left + MARGIN - 6}" y="{y + 4}" text-anchor="end">{share:.0%}</text>')
        x = left + MARGIN + (right - left - MARGIN) * share
        anchor = "end" if share == 1 else "middle"
        text.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="{anchor}">{_shown(most * share)}</text>')
    line = f'<polyline points="{points}" fill="none" stroke="#1f5fa8" stroke-width="2"/>' if points else ""
    return "".join([*text, line])
