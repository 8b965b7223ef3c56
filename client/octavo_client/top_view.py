"""One frame of `octavo top`: a window of statuses in, something to print out. Fits terminals from 80 columns on."""

from collections.abc import Iterator

from octavo.v1 import admin_pb2 as pb
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from octavo_client.verbs.cells import cell
from octavo_client.window import Histogram, Window

WIDE = 120
"""Columns from which on there is room for more."""
SPARKS = "▁▂▃▄▅▆▇█"
# What a page is doing: its sign in a bar and its colour. Signs differ, so that colours are not needed.
PAGES = (("held", "█", "green"), ("fenced", "▒", "yellow"), ("cached", "▓", "cyan"), ("quarantined", "!", "bold red"))
FREE = ("·", "bright_black")


def frame(window: Window, address: str, width: int, trouble: str = "") -> RenderableType:
    """`trouble`: why there is no newer status, if so."""
    status = window.newest
    parts: list[RenderableType] = [_head(status, address), Text()]
    if trouble:
        parts += [Text(trouble, "bold red"), Text()]
    parts += [_figures(window, width), Text(), _workers(window, width)]
    if not status.workers:
        parts.append(Text("  no worker is here: requests wait", "yellow"))
    return Group(*parts, Text(), _legend())


def _head(status: pb.GetStatusResponse, address: str) -> Text:
    minutes, seconds = divmod(int(status.uptime_seconds), 60)
    hours, minutes = divmod(minutes, 60)
    text = Text("octavo top", "bold").append("  ").append_text(cell(status.model))
    return text.append(f"  up {hours}:{minutes:02}:{seconds:02}  ", "bright_black").append_text(cell(address))


def _figures(window: Window, width: int) -> Table:
    """Two columns of figures."""
    grid = Table.grid(padding=(0, 2))
    for _ in range(2):
        grid.add_column(style="bright_black", no_wrap=True)
        grid.add_column(no_wrap=True, min_width=24 if width < WIDE else 44)
    for (left, one), (right, other) in zip(_left(window, width), _right(window), strict=True):
        grid.add_row(left, one, right, other)
    return grid


def _left(window: Window, width: int) -> Iterator[tuple[str, Text]]:
    status, counters = window.newest, window.newest.counters
    speed = window.rate(lambda s: s.counters.generated_tokens)
    sparks = _sparks(window.rates(lambda s: s.counters.generated_tokens), 12 if width < WIDE else 30)
    yield "tokens/s", Text(f"{speed:,.0f} ", "bold").append(sparks, "green")
    yield "prompt/s", Text(f"{window.rate(lambda s: s.counters.prompt_tokens):,.0f}")
    running, swapped = sum(w.running for w in status.workers), sum(w.swapped for w in status.workers)
    yield "sequences", Text(f"{running} run, {swapped} swapped out")
    yield "waiting", _queue(status)
    preempted = window.rate(lambda s: s.counters.swaps + s.counters.drops)
    yield "preempted", Text(f"{preempted:.1f}/s; {counters.swaps:,} swap, {counters.drops:,} drop")
    out, back = (window.rate(lambda s, d=d: getattr(s.counters, f"swapped_{d}_bytes")) for d in ("out", "in"))  # type: ignore[misc]
    yield "swapped", Text(f"out {_bytes(out)}/s, in {_bytes(back)}/s")


def _right(window: Window) -> Iterator[tuple[str, Text]]:
    yield "first token", _quantiles(window, lambda s: s.service.first_token_seconds)
    yield "next token", _quantiles(window, lambda s: s.service.inter_token_seconds)
    yield "in queue", _quantiles(window, lambda s: s.service.queue_seconds)
    outcomes = {each.outcome: each.count for each in window.newest.service.outcomes}
    ended = outcomes.get("stop", 0) + outcomes.get("length", 0)
    others = sum(outcomes.values()) - ended
    yield "answered", Text(f"{ended:,}").append(f", {others:,} otherwise" if others else "", "yellow")
    queries, hits = window.newest.service.prefix_queries, window.newest.service.prefix_hits
    yield "prefix cache", Text(f"{hits / queries:.0%} of prompts found" if queries else "-")
    lost, broken = window.newest.counters.workers_lost, window.newest.counters.audit_violations
    words = [f"workers lost: {lost}"] * bool(lost) + [f"page faults mended: {broken}"] * bool(broken)
    yield "trouble", Text(", ".join(words), "red") if words else Text("none")


def _queue(status: pb.GetStatusResponse) -> Text:
    text = Text(str(status.waiting), "bold yellow" if status.waiting else "")
    classes = [f"{each.waiting} at {each.priority:+d}" for each in status.queue if each.priority]
    return text.append(f" ({', '.join(classes[:3])})" if classes else "")


def _quantiles(window: Window, histogram: Histogram) -> Text:
    values = [window.quantile(histogram, share) for share in (0.5, 0.99)]
    return Text("  ".join(f"{name} {_seconds(value)}" for name, value in zip(("p50", "p99"), values, strict=True)))


def _workers(window: Window, width: int) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bright_black", pad_edge=False)
    is_wide = width >= WIDE
    table.add_column("worker", no_wrap=True, max_width=20 if is_wide else 12)
    for title in ("state", "run", "swap"):
        table.add_column(title, no_wrap=True, justify="left" if title == "state" else "right")
    table.add_column("device pages", no_wrap=True)
    table.add_column("host pages", no_wrap=True)
    table.add_column("step", no_wrap=True, justify="right")
    if is_wide:
        table.add_column("kernels", no_wrap=True)
        table.add_column("memory", no_wrap=True)
    for number, worker in enumerate(window.newest.workers):
        row: list[Text | str] = [
            cell(worker.worker_id),
            Text(pb.WorkerState.Name(worker.state).removeprefix("WORKER_STATE_").lower()),
            str(worker.running),
            str(worker.swapped),
            _bar(worker.device, 24 if is_wide else 16),
            _bar(worker.host, 12 if is_wide else 8),
            _step(window, number, worker.worker_id),
        ]
        table.add_row(*row, *([cell(worker.kernels), _memory(worker)] if is_wide else []))
    return table


def _step(window: Window, number: int, name: str) -> str:
    """Median time of its steps in the window. It may have joined within it, in any place."""

    def histogram(status: pb.GetStatusResponse) -> pb.Histogram:
        found = next((each.answer_seconds for each in status.workers if each.worker_id == name), pb.Histogram())
        known = window.newest.workers[number].answer_seconds
        return found if found.counts else pb.Histogram(bounds=known.bounds, counts=[0] * len(known.counts))

    value = window.quantile(histogram, 0.5)
    return _seconds(value)


def _bar(counts: pb.PageCounts, width: int) -> Text:
    """Whatever there is has at least one sign, as far as they go."""
    if not counts.total:
        return Text("none", "bright_black")
    text = Text()
    left = width
    for field, sign, colour in PAGES:
        pages = getattr(counts, field)
        length = min(left, max(round(pages / counts.total * width), pages > 0))
        text.append(sign * length, colour)
        left -= length
    text.append(FREE[0] * left, FREE[1])
    return text.append(f" {counts.held / counts.total:4.0%}")


def _legend() -> Text:
    text = Text("pages: ", "bright_black")
    for field, sign, colour in PAGES:
        text.append(sign, colour).append(f" {field}  ", "bright_black")
    return text.append(FREE[0], FREE[1]).append(" free   Ctrl-C ends", "bright_black")


def _memory(worker: pb.WorkerStatus) -> Text:
    if not worker.HasField("device_memory_total"):
        return Text("-", "bright_black")
    share = worker.device_memory_used / worker.device_memory_total
    return Text(f"{_bytes(worker.device_memory_used)} of {_bytes(worker.device_memory_total)} ({share:.0%})")


def _sparks(values: list[float], length: int) -> str:
    newest = values[-length:]
    most = max(newest, default=0.0)
    if len(newest) < 2 or not most:  # one alone has nothing to be compared with
        return ""
    return "".join(SPARKS[round(max(value, 0.0) / most * (len(SPARKS) - 1))] for value in newest)


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"
