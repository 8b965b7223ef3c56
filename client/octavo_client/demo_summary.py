"""The figures of a demonstration: what the streams measured on arrival, and what the server says about its pages."""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from octavo.v1 import admin_pb2 as pb
from rich.table import Table

from octavo_client.results import Delta, End, Event, Start


@dataclass
class Recording:
    """One stream as its reader saw it. Times are in seconds on one clock; `arrivals` pairs a time with new tokens."""

    started: float
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    prompt_tokens: int = 0
    finish_reason: str | None = None
    error: str | None = None

    def note(self, event: Event, now: float) -> None:
        """Takes down an event that came now."""
        match event:
            case Start():
                self.prompt_tokens = event.prompt_tokens
            case Delta() if event.token_ids:
                self.arrivals.append((now, len(event.token_ids)))
            case End():
                self.finish_reason = event.answers[0].finish_reason if event.answers else None

    @property
    def is_complete(self) -> bool:
        """It ended because the answer ended."""
        return self.error is None and self.finish_reason in ("stop", "length")


@dataclass(frozen=True)
class Summary:
    """Figures over all streams; nan where nothing could be measured."""

    streams: int
    complete: int
    prompt_tokens: int
    generated_tokens: int
    tokens_per_second: float
    first_token_median_seconds: float
    first_token_max_seconds: float
    inter_token_median_seconds: float
    inter_token_p99_seconds: float
    peak_pages: int
    total_pages: int
    slot_utilisation: float

    def figures(self) -> dict[str, float | None]:
        """Returns the figures for JSON, which has no nan: null stands for it."""
        return {name: None if math.isnan(value) else round(value, 4) for name, value in asdict(self).items()}

    def table(self) -> Table:
        """Returns the figures for people."""
        table = Table(title="Summary", show_header=False)
        table.add_row("streams that ended well", f"{self.complete} of {self.streams}")
        table.add_row("tokens", f"{self.prompt_tokens} read, {self.generated_tokens} written")
        table.add_row("speed, all streams together", f"{self.tokens_per_second:.1f} tokens/s")
        table.add_row(
            "time to first token",
            f"median {self.first_token_median_seconds:.2f} s, max {self.first_token_max_seconds:.2f} s",
        )
        inter_token = (
            f"median {self.inter_token_median_seconds * 1e3:.0f} ms, p99 {self.inter_token_p99_seconds * 1e3:.0f} ms"
        )
        table.add_row("inter-token latency", inter_token)
        table.add_row("peak pages in use", f"{self.peak_pages} of {self.total_pages}")
        table.add_row("KV slots in use that held a token", f"{self.slot_utilisation:.1%}")
        return table


def summarise(recordings: Sequence[Recording], status: pb.GetStatusResponse) -> Summary:
    """Returns the figures of the streams and of the server after them."""
    arrivals = [arrival for recording in recordings for arrival in recording.arrivals]
    generated = sum(count for _, count in arrivals)
    seconds = max((time for time, _ in arrivals), default=math.nan) - min(recording.started for recording in recordings)
    first = [recording.arrivals[0][0] - recording.started for recording in recordings if recording.arrivals]
    gaps = sorted(gap for recording in recordings for gap in inter_token_gaps(recording.arrivals))
    peaks = [worker.device.peak_held for worker in status.workers]
    held = sum(peak * worker.slot_utilisation for peak, worker in zip(peaks, status.workers, strict=True))
    return Summary(
        streams=len(recordings),
        complete=sum(recording.is_complete for recording in recordings),
        prompt_tokens=sum(recording.prompt_tokens for recording in recordings),
        generated_tokens=generated,
        tokens_per_second=generated / seconds if seconds > 0 else math.nan,
        first_token_median_seconds=statistics.median(first) if first else math.nan,
        first_token_max_seconds=max(first, default=math.nan),
        inter_token_median_seconds=percentile(gaps, 50),
        inter_token_p99_seconds=percentile(gaps, 99),
        peak_pages=sum(peaks),
        total_pages=sum(worker.device.total for worker in status.workers),
        slot_utilisation=held / sum(peaks) if sum(peaks) else math.nan,
    )


def inter_token_gaps(arrivals: Sequence[tuple[float, int]]) -> list[float]:
    """Returns the seconds between a token and the one before it. Tokens that arrive together share their gap evenly.

    The first arrival has no gap: waiting for it is the time to the first token.
    """
    pairs = itertools.pairwise(arrivals)
    return [(time - before) / count for (before, _), (time, count) in pairs for _ in range(count)]


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Returns the smallest value that at least `percent` of the ascending values do not exceed; nan of none."""
    return ordered[math.ceil(len(ordered) * percent / 100) - 1] if ordered else math.nan
