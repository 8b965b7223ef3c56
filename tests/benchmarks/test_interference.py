"""What a long prompt does to streams."""

import pytest

from benchmarks.interference import summarise


def test_gaps_count_to_the_long_prompt_from_its_arrival_to_the_token_after_its_own() -> None:
    stream = [0.0, 1.0, 2.0, 4.0, 9.0, 10.0]
    figures = summarise([stream], began=0.0, arrived=3.0, ended=8.0)
    assert figures == {"first_token": 5.0, "median_before": 1.0, "median_meanwhile": 3.5, "longest_meanwhile": 5.0}


def test_gaps_from_before_all_streams_ran_are_left_out() -> None:
    figures = summarise([[0.0, 8.0, 9.0, 10.0], [7.0, 8.5, 10.0]], began=7.0, arrived=9.5, ended=9.8)
    assert figures["median_before"] == pytest.approx(1.25)
