"""Latency and use of pages as they are seen at the core's verbs, recorded or simulated."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Committed, Finished, Output, Refused
from octavo_scheduler.core.worker import Utilisation, Worker


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Times in seconds; None where nothing was there to measure."""

    requests: int
    refused: int
    unfinished: int
    generated_tokens: int
    ttft_p50: float | None
    """From the submission of a request to its first token."""
    ttft_p99: float | None
    inter_token_p50: float | None
    inter_token_p99: float | None
    slot_utilisation: float
    """Share of the token slots of held pages that hold a token, over all plans."""
    preemptions: int
    makespan: float
    """From the first submission to the last end."""


class Meter:
    """Told of every submission, output and plan."""

    def __init__(self) -> None:
        self._arrived: dict[str, float] = {}
        self._last_token: dict[tuple[str, int], float] = {}
        self._open: dict[str, int] = {}
        self._first: list[float] = []
        self._between: list[float] = []
        self._utilisation = Utilisation()
        self._num_requests = self._num_refused = self._num_tokens = 0
        self._began: float | None = None
        self._ended = 0.0

    def arrive(self, request: str, branches: int, now: float) -> None:
        self._num_requests += 1
        self._began = now if self._began is None else self._began
        self._arrived[request] = now
        self._open[request] = branches

    def note(self, outputs: Iterable[Output], now: float) -> None:
        for output in outputs:
            match output:
                case Committed():
                    self._commit(output, now)
                case Finished():
                    self._last_token.pop((output.request, output.branch), None)
                    self._close(output.request, 1)
                    self._ended = now
                case Refused():
                    self._close(output.request, self._open[output.request])
                    self._num_refused += 1

    def _commit(self, token: Committed, now: float) -> None:
        self._num_tokens += 1
        branch = (token.request, token.branch)
        if branch in self._last_token:
            self._between.append(now - self._last_token[branch])
        elif token.request in self._arrived:
            self._first.append(now - self._arrived.pop(token.request))
        self._last_token[branch] = now

    def _close(self, request: str, branches: int) -> None:
        self._open[request] -= branches
        if not self._open[request]:
            del self._open[request]

    def plan(self, worker: Worker) -> None:
        self._utilisation.filled += worker.filled_slots
        self._utilisation.held += worker.device.num_held * worker.page_size

    def figures(self, core: Core) -> Figures:
        workers = core.workers.values()
        return Figures(
            requests=self._num_requests,
            refused=self._num_refused,
            unfinished=len(self._open),
            generated_tokens=self._num_tokens,
            ttft_p50=percentile(self._first, 0.5),
            ttft_p99=percentile(self._first, 0.99),
            inter_token_p50=percentile(self._between, 0.5),
            inter_token_p99=percentile(self._between, 0.99),
            slot_utilisation=self._utilisation.share,
            preemptions=core.counters.drops + core.counters.swaps + sum(w.num_drops + w.num_swaps for w in workers),
            makespan=self._ended - self._began if self._began is not None and self._ended else 0.0,
        )


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that at least this share of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(ceil(share * len(ordered)) - 1, 0)] if ordered else None
