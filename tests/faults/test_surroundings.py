"""Slow lines that break, clocks that jump, a host tier that is full: no stream notices."""

import shutil
from pathlib import Path

import pytest

from tests.doubles.tiny_model import make_tiny_model
from tests.faults.surroundings import Outcome, bad_lines, full_host_tier, jumping_clocks

CUTS = 2


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "model")


def assert_unharmed(outcome: Outcome) -> None:
    assert (outcome.tally.errors, outcome.tally.harm) == ([], 0)
    assert outcome.tally.ended > 0


def test_lines_to_the_workers_that_are_slow_and_cut_cost_no_stream_a_token(model: Path, tmp_path: Path) -> None:
    outcome = bad_lines("paper", model, tmp_path, CUTS)
    assert_unharmed(outcome)
    assert outcome.counters.workers_lost >= CUTS


@pytest.mark.skipif(shutil.which("cc") is None, reason="the clock is compiled")
def test_wall_clocks_that_jump_by_an_hour_cost_no_worker_its_place_and_no_stream_a_token(
    model: Path, tmp_path: Path
) -> None:
    outcome = jumping_clocks("paper", model, tmp_path, 2.0)
    assert_unharmed(outcome)
    assert outcome.counters.workers_lost == 0


def test_where_the_host_tier_is_full_what_was_to_be_swapped_is_dropped_and_says_the_same(
    model: Path, tmp_path: Path
) -> None:
    outcome = full_host_tier(model, tmp_path)
    assert_unharmed(outcome)
    assert outcome.counters.swaps > 0
    assert outcome.counters.drops > 0
