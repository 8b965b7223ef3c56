"""What `make simulate` adds up, and that a further run goes on where the last one stopped."""

import json
from pathlib import Path

import pytest

from benchmarks import simulate


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    monkeypatch.setattr("sys.argv", ["simulate", "--processes", "1", *arguments])
    assert simulate.main() == 0
    line: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return line


def test_a_run_goes_on_with_the_next_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def facts(line: dict[str, object]) -> list[object]:
        return [
            line[name] for name in ("seeds", "events", "plans", "requests", "violations", "stuck", "faults", "pairs")
        ]

    monkeypatch.setattr(simulate, "STATE", tmp_path / "cache" / "state.json")
    assert call(monkeypatch, capsys, "--seeds", "3")["seeds"] == 3
    in_two_runs = call(monkeypatch, capsys, "--seeds", "6")
    monkeypatch.setattr(simulate, "STATE", tmp_path / "other" / "state.json")
    assert facts(call(monkeypatch, capsys, "--seeds", "6")) == facts(in_two_runs)


def test_other_sources_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulate, "STATE", tmp_path / "state.json")
    call(monkeypatch, capsys, "--seeds", "4")
    monkeypatch.setattr(simulate, "digest", lambda: "of other sources")
    assert call(monkeypatch, capsys, "--seeds", "2")["seeds"] == 2


def test_one_seed_can_be_told_in_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["simulate", "--seed", "1", "--trace"])
    assert simulate.main() == 0
    told = capsys.readouterr().out
    assert "hello of survivor" in told
    assert "welcome" in told
