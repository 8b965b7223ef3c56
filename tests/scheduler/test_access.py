from pathlib import Path

import pytest
from octavo_scheduler.access import is_local, read_token, require_keys
from octavo_scheduler.config import read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.keys import main as make_keys

MODEL = ["--model", "any"]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:1", "[::1]:1", "localhost:1", "tcp://127.0.0.1:1", "tcp://127.9.9.9:1", "unix:/a/b", "ipc:///a/b"],
)
def test_loopback_and_unix_sockets_need_no_keys(address: str) -> None:
    assert is_local(address)
    require_keys(address, has_keys=False, remedy="")


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", "[::]:1", "*:1", "10.0.0.1:1", "tcp://*:1", "tcp://0.0.0.0:1", "box:1", ":1"]
)
def test_anything_wider_refuses_to_start_and_says_how_to_mend_it(address: str) -> None:
    assert not is_local(address)
    flag = "--workers" if address.startswith("tcp:") else "--listen"
    with pytest.raises(StartError, match=r"other machines; give --.*or listen on 127.0.0.1"):
        read_config([*MODEL, flag, address])


def test_one_half_of_a_pair_of_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="belong together"):
        read_config([*MODEL, "--tls-cert", str(tmp_path)])
    with pytest.raises(StartError, match="other machines"):
        read_config([*MODEL, "--listen", "0.0.0.0:1", "--tls-cert", "a", "--tls-key", "b"])


@pytest.mark.parametrize("content", ["", "   \n", "short"])
def test_an_empty_or_short_token_is_a_start_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(StartError, match="at least 16"):
        read_token(tmp_path / "token")


def test_keys_are_made_once_with_each_secret_only_where_it_is_needed(tmp_path: Path) -> None:
    out = tmp_path / "keys"
    assert make_keys([str(out), "--dns", "scheduler"]) == 0
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert set(files) == {
        *(f"scheduler/{name}" for name in ("scheduler.key", "scheduler.key_secret", "allow/worker.key")),
        *(f"scheduler/{name}" for name in ("tls.crt", "tls.key", "token")),
        *(f"worker/{name}" for name in ("worker.key", "worker.key_secret", "scheduler.key")),
        *(f"client/{name}" for name in ("ca.crt", "token")),
    }
    for name in files:
        if "secret" in name or name.endswith(("tls.key", "token")):
            assert (out / name).stat().st_mode & 0o077 == 0
    assert make_keys([str(out)]) == 0
    assert {name: (out / name).read_bytes() for name in files} == files
    assert {path.name for path in out.iterdir()} == {"scheduler", "worker", "client"}


def test_keys_that_cannot_be_written_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert make_keys([str(tmp_path / "file" / "keys")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--max-num-seqs", "0"], "max_num_seqs must be at least 1"),
        (["--max-step-tokens", "-1"], "max_step_tokens"),
        (["--max-chunk", "0"], "max_chunk"),
        (["--plans-in-flight", "3"], "plans_in_flight must be 1 or 2"),
    ],
)
def test_settings_out_of_range_name_the_setting(flags: list[str], sentence: str) -> None:
    with pytest.raises(StartError, match=sentence):
        read_config([*MODEL, *flags])
