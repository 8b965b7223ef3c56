"""Workers that are replaced in order under load, by their like or by another version: no stream notices."""

from pathlib import Path

import pytest

from tests.doubles.tiny_model import make_tiny_model
from tests.faults.drains import WAYS, WORKERS, upgrade
from tests.faults.long_prompts import CONTEXT, probe


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "model")


def test_DR01_workers_of_older_and_newer_minor_versions_are_replaced_one_by_one_and_no_stream_loses_a_token(
    model: Path, tmp_path: Path
) -> None:
    outcome = upgrade("real", model, tmp_path)
    assert (outcome.tally.errors, outcome.tally.harm) == ([], 0)
    assert outcome.tally.ended > 0
    assert set(outcome.ways) == {", ".join(way) for way in WAYS}
    assert outcome.exit_codes == {0: 2 * WORKERS}


def test_EL02_long_prompts_are_answered_one_that_is_too_long_is_refused_and_health_is_answered_meanwhile(
    tmp_path: Path,
) -> None:
    found = probe(make_tiny_model(tmp_path / "model", layers=1, max_context=CONTEXT), 4)
    assert (found["ends"], found["huge"]) == ({"OK": 4}, "RESOURCE_EXHAUSTED")
    assert min(found["prompt_tokens"]) > 50_000
    assert found["probes"] > 0
