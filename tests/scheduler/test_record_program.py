import subprocess
import sys
from pathlib import Path

import pytest
from octavo_scheduler.event_log import EventLog
from octavo_scheduler.offline.replay import replay

from tests.processes import running


@pytest.mark.parametrize("flags", [[], ["--tokens"]])
def test_a_scheduler_that_is_recorded_leaves_a_whole_log(model_folder: Path, tmp_path: Path, flags: list[str]) -> None:
    scheduler = ["--model", str(model_folder), "--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w"]
    command = [sys.executable, "-m", "octavo_scheduler.record_program", *flags, str(tmp_path / "log"), "--", *scheduler]
    with running(command, ready="serving"):
        pass
    log = EventLog(tmp_path / "log")
    assert log.header.has_tokens == bool(flags)
    outcome = replay(log)
    assert (outcome.difference, outcome.is_complete) == (None, True)
    assert outcome.calls > 0


def test_the_schedulers_own_complaints_come_through(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "octavo_scheduler.record_program", str(tmp_path / "log"), "--", "--model", "no"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("octavo scheduler: ")
    assert not (tmp_path / "log").exists()
