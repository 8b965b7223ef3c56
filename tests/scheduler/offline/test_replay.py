"""Recorded histories, replayed by other processes."""

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from octavo_scheduler.core import Core, Settings
from octavo_scheduler.offline.replay import main
from octavo_scheduler.record import Recorder

from tests.doubles.history import history

RUNS_PER_SEED = 5


def record(path: Path, seed: int, *, has_tokens: bool) -> None:
    recorders: list[Recorder] = []

    def make(settings: Settings) -> Core:
        recorders.append(Recorder(settings, path, has_tokens=has_tokens))
        return recorders[0]

    history(seed, make, num_events=150)
    recorders[0].close()


@pytest.mark.parametrize("has_tokens", [False, True], ids=["pseudonyms", "tokens"])
def test_every_plan_is_the_same_in_another_process_with_another_hash_seed(tmp_path: Path, has_tokens: bool) -> None:
    hash_seeds = [random.randrange(1 << 32), random.randrange(1 << 32)]
    for number, hash_seed in enumerate(hash_seeds):
        logs = [tmp_path / f"{number}-{seed}" for seed in range(RUNS_PER_SEED)]
        for log in logs:
            record(log, 1000 * number + int(log.name[2:]), has_tokens=has_tokens)
        ended = subprocess.run(
            [sys.executable, "-m", "octavo_scheduler.offline.replay", *map(str, logs)],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            capture_output=True,
            text=True,
        )
        assert (ended.returncode, ended.stderr) == (0, ""), f"with PYTHONHASHSEED={hash_seed}"
        figures = json.loads(ended.stdout)
        assert figures["runs"] == figures["equal"] == figures["complete"] == RUNS_PER_SEED
        assert figures["plans"] > 20 * RUNS_PER_SEED


def test_a_difference_is_exit_code_1_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "log", 0, has_tokens=False)
    lines = gzip.decompress((tmp_path / "log").read_bytes()).splitlines(keepends=True)
    plans = [i for i, line in enumerate(lines) if line.startswith(b'["plan"') and b"null" not in line]
    del lines[plans[len(plans) // 2]]
    (tmp_path / "changed").write_bytes(gzip.compress(b"".join(lines)))
    assert main([str(tmp_path / "log"), str(tmp_path / "changed")]) == 1
    out, err = capsys.readouterr()
    figures: dict[str, Any] = json.loads(out)
    assert (figures["runs"], figures["equal"]) == (2, 1)
    assert err.startswith(f"octavo replay: {tmp_path}/changed: call ")


def test_what_is_no_log_is_exit_code_2_and_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("hello")
    assert main([str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err == f"octavo replay: {tmp_path}/x is not a log of octavo\n"
    assert main([str(tmp_path / "y")]) == 2
    assert "No such file" in capsys.readouterr().err
