"""From what was measured to figures, ratios and a table. Everything here is arithmetic."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.store import PROBLEM, Entry
from benchmarks.table import Cell, table

FIGURES = ("w_tok_s", "single_tok_s", "prefill_tok_s")
SAME_BATCHES = ("octavo bf16", "octavo bf16 inside")

Summary = dict[str, Any]
"""Of one contestant over all rounds: `kind`, best rates by figure, `w_median`, `ready_s`, `others_share`; or `problem`."""


def summarise(kind: str, entries: Iterable[Entry]) -> Summary:
    """Each figure is the best of all rounds: whatever else runs on a machine only ever makes it slower."""
    entries = list(entries)
    good = [entry for entry in entries if PROBLEM not in entry]
    if not good:
        return {"kind": kind, PROBLEM: entries[-1][PROBLEM] if entries else "not measured"}
    summary: Summary = {"kind": kind, "about": good[0]["about"], "rounds": len(good)}
    shares = []
    for figure in FIGURES:
        samples = [sample for entry in good for sample in entry["samples"].get(figure, [])]
        if samples:
            rate, share = max(samples, key=lambda sample: sample[0])
            summary[figure] = rate
            shares.append(share)
    rates = [rate for entry in good for rate, _ in entry["samples"].get("w_tok_s", [])]
    summary["w_median"] = statistics.median(rates) if rates else None
    summary["ready_s"] = min((entry["ready_s"] for entry in good if "ready_s" in entry), default=None)
    summary["others_share"] = max((share for share in shares if share is not None), default=None)
    return summary


def ratios(summaries: Mapping[str, Summary], answers: Mapping[str, Sequence[str]]) -> dict[str, float | None]:
    """By the names under which `make bench-peers` promises them; None where one of the two was not measured."""

    def rate(name: str, figure: str) -> float | None:
        return summaries.get(name, {}).get(figure)

    def best_peer(figure: str) -> float | None:
        return max(
            (each[figure] for each in summaries.values() if each["kind"] == "peer" and figure in each), default=None
        )

    bf16, inside = "octavo bf16", "octavo bf16 inside"
    bench = "llama-bench bf16"
    return {
        "w_tok_s": rate(bf16, "w_tok_s"),
        "w_ratio": ratio(rate(bf16, "w_tok_s"), best_peer("w_tok_s")),
        "w_inside_ratio": ratio(rate(inside, "w_tok_s"), best_peer("w_tok_s")),
        "single_ratio": ratio(rate(bf16, "single_tok_s"), best_peer("single_tok_s")),
        "single_bench_ratio": ratio(rate(bf16, "single_tok_s"), rate(bench, "single_tok_s")),
        "prefill_ratio": ratio(rate(bf16, "prefill_tok_s"), best_peer("prefill_tok_s")),
        "static_ratio": ratio(rate(bf16, "w_tok_s"), rate("transformers static", "w_tok_s")),
        "int8_w_ratio": ratio(rate("octavo int8", "w_tok_s"), rate(bf16, "w_tok_s")),
        "int8_w_inside_ratio": ratio(rate("octavo int8 inside", "w_tok_s"), rate(inside, "w_tok_s")),
        "int4_single_ratio": ratio(rate("octavo int4", "single_tok_s"), rate(bf16, "single_tok_s")),
        "int4_single_inside_ratio": ratio(rate("octavo int4 inside", "single_tok_s"), rate(inside, "single_tok_s")),
        "service_cost": cost(rate(bf16, "w_tok_s"), rate(inside, "w_tok_s")),
        "equal_answers": equal_share(*(answers.get(name, ()) for name in SAME_BATCHES)),
    }


def ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def cost(served: float | None, alone: float | None) -> float | None:
    """Share of the worker's speed that is lost on the way through gRPC and scheduler."""
    return 1 - served / alone if served and alone else None


def equal_share(one: Sequence[str], other: Sequence[str]) -> float | None:
    """Of two runs of the same requests: how many answers are the same, token for token."""
    if not one or len(one) != len(other):
        return None
    return sum(a == b for a, b in zip(one, other, strict=True)) / len(one)


def as_table(summaries: Mapping[str, Summary]) -> str:
    """One line a contestant; its last column says how many times as fast Octavo in bf16 is on W through gRPC."""
    ours = summaries.get("octavo bf16", {}).get("w_tok_s")
    header = ["tokens per second", "W", "median", "one stream", "prefill", "ready s", "others %", "octavo ÷ it"]
    return table(header, [row(name, summary, ours) for name, summary in summaries.items()])


def row(name: str, summary: Summary, ours: float | None) -> list[Cell]:
    if PROBLEM in summary:
        return [f"{name}: {summary[PROBLEM]}", *[None] * 7]
    share = summary["others_share"]
    columns = [summary.get("w_tok_s"), summary["w_median"], summary.get("single_tok_s"), summary.get("prefill_tok_s")]
    percent = None if share is None else f"{100 * share:.0f}"
    return [name, *columns, summary["ready_s"], percent, ratio(ours, summary.get("w_tok_s"))]
