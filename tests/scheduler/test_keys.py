from pathlib import Path

import pytest
from octavo_scheduler.keys import FILES
from octavo_scheduler.keys import main as make_keys


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_keys_are_made_once_with_each_secret_only_where_it_is_needed(tmp_path: Path) -> None:
    out = tmp_path / "keys"
    assert make_keys([str(out), "--dns", "scheduler"]) == 0
    files = contents(out)
    assert set(files) == {
        *(f"scheduler/{name}" for name in ("scheduler.key", "scheduler.key_secret", "allow/worker.key")),
        *(f"scheduler/{name}" for name in ("tls.crt", "tls.key", "client-ca.crt", "token", "admin-token")),
        *(f"worker/{name}" for name in ("worker.key", "worker.key_secret", "scheduler.key")),
        *(f"{role}/{name}" for role in ("client", "admin") for name in ("ca.crt", "token", "tls.crt", "tls.key")),
    }
    assert files["client/token"] == files["scheduler/token"] != files["admin/token"] == files["scheduler/admin-token"]
    for name in files:
        if "secret" in name or name.endswith(("tls.key", "token")):
            assert (out / name).stat().st_mode & 0o077 == 0
    assert make_keys([str(out)]) == 0
    assert contents(out) == files
    assert {path.name for path in out.iterdir()} == {"scheduler", "worker", "client", "admin"}


def test_one_more_worker_gets_a_key_of_its_own_and_a_place_on_the_allow_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path)
    assert make_keys([out, "--add-worker", "rack-2"]) == 2
    assert "holds no keys yet" in capsys.readouterr().err
    make_keys([out])
    before = contents(tmp_path)
    assert make_keys([out, "--add-worker", "rack-2"]) == 0
    made = {name: content for name, content in contents(tmp_path).items() if name not in before}
    own = {f"worker-rack-2/{name}" for name in ("worker.key", "worker.key_secret", "scheduler.key")}
    assert set(made) == {"scheduler/allow/rack-2.key", *own}
    assert made["scheduler/allow/rack-2.key"] == made["worker-rack-2/worker.key"] != before["worker/worker.key"]
    assert made["worker-rack-2/scheduler.key"] == before["worker/scheduler.key"]
    assert (tmp_path / "worker-rack-2" / "worker.key_secret").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("name", "sentence"), [("worker", "already"), ("../x", "is no name"), ("", "is no name")])
def test_a_worker_needs_a_new_name_that_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, sentence: str
) -> None:
    make_keys([str(tmp_path)])
    before = contents(tmp_path)
    assert make_keys([str(tmp_path), "--add-worker", name]) == 2
    assert sentence in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_keys_that_cannot_be_written_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert make_keys([str(tmp_path / "file" / "keys")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("missing", FILES)
def test_an_incomplete_set_is_left_as_it_is_and_what_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    assert make_keys([str(tmp_path)]) == 0
    (tmp_path / missing).unlink()
    before = contents(tmp_path)
    assert make_keys([str(tmp_path)]) == 2
    assert contents(tmp_path) == before
    err = capsys.readouterr().err
    assert f"lacks {missing}, and other keys are there" in err
    assert err.count("\n") == 1
