"""`make bench-front` with a few streams: what it prints is measured."""

from benchmarks.front import run


def test_tokens_are_counted_and_timed_from_the_result_that_they_came_of() -> None:
    figures = run(1, [4], seconds=0.5)["4"]
    assert figures["tok_s"] > 0
    assert 0 < figures["all_tok_s_per_core"] < figures["tok_s_per_core"], "the scheduler takes its share"
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]
