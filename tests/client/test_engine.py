"""Engine folders from the client's side: two halves, then a name; or nothing."""

import os
import sys
from pathlib import Path

import pytest
from octavo_client import LLM, engine, errors
from octavo_client.cli import main

WRITES = "import pathlib, sys; pathlib.Path(sys.argv[2], 'half-' + sys.argv[0][1:]).write_text(' '.join(sys.argv[3:]))"
MANIFEST = (
    '{"weights": "int4", "kernels": "cpu", "files": {"a": {"bytes": 1048576}, "b": {"bytes": 524288}}}'  # what is read
)
WRITES_MANIFEST = f"import pathlib, sys; pathlib.Path(sys.argv[2], 'manifest.json').write_text('{MANIFEST}')"
FAILS = "import sys; print('octavo prepare: the model is no model', file=sys.stderr); sys.exit(2)"


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that stand in for the two halves."""
    monkeypatch.setattr(engine, "SCHEDULER", python(WRITES))
    monkeypatch.setattr(engine, "WORKER", python(WRITES_MANIFEST))


@pytest.mark.usefixtures("halves")
def test_a_folder_appears_once_both_halves_are_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["prepare", "model", str(out), "--weights", "int4"]) == 0
    assert capsys.readouterr().out == (
        f"octavo: {out} has 1.5 MiB with int4 weights for the cpu kernels; try: octavo serve {out}\n"
    )
    assert {path.name for path in out.iterdir()} == {"half-c", "manifest.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert engine.is_engine(out)


@pytest.mark.usefixtures("halves")
@pytest.mark.parametrize("half", ["SCHEDULER", "WORKER"])
def test_a_half_that_fails_says_why_and_leaves_nothing_behind(
    half: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, half, python(FAILS))
    assert main(["prepare", "model", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == "octavo: the model is no model\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("halves")
def test_what_ends_the_preparation_early_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WORKER", python("import os, signal; os.kill(os.getppid(), signal.SIGTERM)"))
    with pytest.raises(SystemExit) as ended:
        main(["prepare", "model", str(tmp_path / "out")])
    assert ended.value.code == 128 + 15
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("halves")
def test_flags_go_to_the_worker_that_packs_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"import sys; print(sys.argv[3:]); {WRITES}; {WRITES_MANIFEST}"
    monkeypatch.setattr(engine, "WORKER", python(code))
    monkeypatch.setattr(engine, "SCHEDULER", python("pass"))
    words = ["--weights", "int8", "--dtype", "float32", "--kernels", "cpu", "--threads", "3"]
    assert main(["prepare", "model", str(tmp_path / "out"), *words]) == 0
    assert (tmp_path / "out" / "half-c").read_text() == " ".join(words)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["model", "HERE"], "exists already; name a folder that does not"),
        (["model", "HERE/no/where"], "cannot be made: No such file or directory"),
        (["model"], "octavo prepare needs the folder to make"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", *(word.replace("HERE", str(tmp_path)) for word in words)]) == 2
    assert complaint in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_loading_what_is_no_engine_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"is no engine folder; LLM\('.*'\) serves other models"):
        LLM.load(tmp_path)
