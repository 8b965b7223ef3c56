"""Workers that die or fall silent under load: no stream notices."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.tiny_model import make_tiny_model
from tests.faults.kills import kill
from tests.faults.silence import darken, freeze
from tests.faults.streams import Tally
from tests.faults.worker import PHASES


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "model")


def assert_unharmed(tally: Tally) -> None:
    assert tally.errors == []
    assert (tally.failed, tally.lost, tally.duplicated, tally.changed) == (0, 0, 0, 0)
    assert tally.ended > 0


@pytest.mark.parametrize(("kind", "count"), [("paper", 8), ("real", 4)])
def test_workers_killed_in_every_phase_of_a_step_cost_no_stream_a_token(
    kind: str, count: int, model: Path, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    outcome = kill(kind, model, tmp_path, count)
    assert_unharmed(outcome.tally)
    assert outcome.phases == dict.fromkeys(PHASES, count // len(PHASES))
    assert len(outcome.detected) == count
    figure(f"faults, {kind}: {outcome.figures()}")


@pytest.mark.parametrize("silence", [freeze, darken])
def test_a_worker_that_lives_and_says_nothing_is_given_up_and_costs_no_stream_a_token(
    silence: Callable[[str, Path, Path, int], tuple[list[float], Tally]], model: Path, tmp_path: Path
) -> None:
    seconds, tally = silence("paper", model, tmp_path, 1)
    assert_unharmed(tally)
    assert len(seconds) == 1
