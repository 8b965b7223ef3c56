"""Recorded, simulated as recorded, and simulated as it might have been: side by side."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from octavo_scheduler.event_log import EventLog
from octavo_scheduler.offline.change import Change
from octavo_scheduler.offline.latency import fit
from octavo_scheduler.offline.meter import Figures
from octavo_scheduler.offline.traffic import read_traffic
from octavo_scheduler.offline.what_if import Simulation


def _milliseconds(value: float) -> str:
    return f"{value * 1e3:.1f} ms"


ROWS: dict[str, tuple[str, Callable[[float], str]]] = {
    "ttft_p50": ("time to first token, median", _milliseconds),
    "ttft_p99": ("time to first token, p99", _milliseconds),
    "inter_token_p50": ("between tokens, median", _milliseconds),
    "inter_token_p99": ("between tokens, p99", _milliseconds),
    "slot_utilisation": ("filled slots of held pages", "{:.1%}".format),
    "preemptions": ("preemptions", "{:.0f}".format),
    "makespan": ("first arrival to last end", "{:.2f} s".format),
    "generated_tokens": ("tokens generated", "{:.0f}".format),
    "refused": ("requests refused", "{:.0f}".format),
    "unfinished": ("requests without an end", "{:.0f}".format),
}
"""Field of Figures: what a reader calls it, and how it is written."""
NOTHING = "-"


@dataclass(frozen=True)
class Comparison:
    """The model's own error is what `as_recorded` says against `recorded`."""

    recorded: Figures
    as_recorded: Figures
    what_if: Figures

    @property
    def errors(self) -> dict[str, float | None]:
        """Of the model, relative, for each figure; None where nothing was recorded."""
        was, is_now = asdict(self.recorded), asdict(self.as_recorded)
        return {name: is_now[name] / was[name] - 1 if was[name] and is_now[name] is not None else None for name in ROWS}

    def as_dict(self) -> dict[str, Any]:
        return {
            "recorded": asdict(self.recorded),
            "model": asdict(self.as_recorded),
            "model_error": self.errors,
            "what_if": asdict(self.what_if),
        }

    def table(self) -> str:
        """For people: one line a figure."""
        lines = [("", "recorded", "model, as recorded", "its error", "model, what if")]
        columns = [asdict(figures) for figures in (self.recorded, self.as_recorded, self.what_if)]
        for name, (title, write) in ROWS.items():
            was, same, other = (NOTHING if column[name] is None else write(column[name]) for column in columns)
            error = self.errors[name]
            lines.append((title, was, same, NOTHING if error is None else f"{error:+.1%}", other))
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join(
            "  ".join(
                [line[0].ljust(widths[0]), *(w.rjust(n) for w, n in zip(line[1:], widths[1:], strict=True))]
            ).rstrip()
            for line in lines
        )


def compare(log: EventLog, change: Change) -> Comparison:
    """Raises LogError for a damaged log, ValueError for a change that cannot be or a log without a finished step."""
    traffic = read_traffic(log)
    model = fit(traffic.steps)
    settings = log.header.settings
    nothing = Change({}, {})
    return Comparison(
        recorded=traffic.figures,
        as_recorded=Simulation(traffic, settings, nothing, model).run(),
        what_if=Simulation(traffic, settings, change, model).run(),
    )
