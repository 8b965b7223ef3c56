"""From samples to summaries and ratios."""

import pytest

from benchmarks.peers.report import as_table, cost, equal_share, ratios, summarise
from benchmarks.store import PROBLEM, Entry


def entry(w: float, single: float = 10.0, prefill: float = 100.0, share: float = 0.0) -> Entry:
    rates = {"w_tok_s": w, "single_tok_s": single, "prefill_tok_s": prefill}
    return {
        "about": {"engine": "e"},
        "ready_s": 1.0,
        "samples": {name: [[rate, share]] for name, rate in rates.items()},
    }


SUMMARIES = {
    "octavo bf16": summarise("octavo", [entry(900, 150, 2400)]),
    "octavo bf16 inside": summarise("octavo", [entry(1000, 160, 2500)]),
    "octavo int8": summarise("octavo", [entry(1350, 300, 3400)]),
    "octavo int4": summarise("octavo", [{PROBLEM: "no such weights"}]),
    "quick at W": summarise("peer", [entry(600, 50, 1000)]),
    "quick at prefill": summarise("peer", [entry(300, 75, 2000)]),
    "llama-bench bf16": summarise("tool", [{"about": {}, "samples": {"single_tok_s": [[100.0, None]]}}]),
    "transformers static": summarise("static", [entry(30, 40, 900)]),
}


def test_a_summary_has_the_best_of_all_rounds_and_the_median_of_w() -> None:
    found = summarise(
        "peer", [entry(10, 1, 1, share=0.5), entry(30, 3, 3, share=0.25), entry(20, 2, 2), {PROBLEM: "it fell over"}]
    )
    assert (found["w_tok_s"], found["w_median"], found["others_share"], found["rounds"]) == (30, 20, 0.25, 3)


def test_one_that_never_ran_keeps_its_last_problem() -> None:
    assert summarise("peer", [{PROBLEM: "first"}, {PROBLEM: "last"}]) == {"kind": "peer", PROBLEM: "last"}


def test_each_figure_is_compared_with_the_peer_that_is_best_at_it() -> None:
    found = ratios(SUMMARIES, {})
    assert found["w_tok_s"] == 900
    assert found["w_ratio"] == 1.5
    assert found["w_inside_ratio"] == pytest.approx(1000 / 600)
    assert found["single_ratio"] == 2.0
    assert found["single_bench_ratio"] == 1.5
    assert found["prefill_ratio"] == 1.2
    assert found["static_ratio"] == 30.0
    assert found["int8_w_ratio"] == 1.5
    assert found["service_cost"] == pytest.approx(0.1)


def test_a_ratio_with_somebody_who_did_not_run_is_none() -> None:
    found = ratios(SUMMARIES, {})
    assert found["int4_single_ratio"] is None
    assert found["int8_w_inside_ratio"] is None
    assert ratios({}, {})["w_ratio"] is None
    assert cost(None, 1.0) is None


def test_equal_answers_are_counted_between_two_runs_of_the_same_requests() -> None:
    assert equal_share(["a", "b", "c", "d"], ["a", "x", "c", "d"]) == 0.75
    assert equal_share([], []) is None
    assert equal_share(["a"], ["a", "b"]) is None


def test_the_table_has_a_line_for_everybody_and_says_what_went_wrong() -> None:
    lines = as_table(SUMMARIES).split("\n")
    assert len(lines) == 2 + len(SUMMARIES)
    assert lines[5].startswith("octavo int4: no such weights")
    assert lines[6].split()[-1] == "1.50"
