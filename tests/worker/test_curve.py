"""Files of keys."""

from pathlib import Path

import pytest
from octavo_worker.curve import load_keys
from octavo_worker.errors import ConfigError
from zmq.auth import create_certificates


@pytest.mark.parametrize(("file", "sentence"), [("missing", "cannot be read"), ("worker.key", "holds no secret key")])
def test_bad_key_files_are_refused(file: str, sentence: str, tmp_path: Path) -> None:
    create_certificates(tmp_path, "worker")
    with pytest.raises(ConfigError, match=sentence):
        load_keys(tmp_path / file, is_secret=True)


@pytest.mark.parametrize("key", ["", "abcde", "abc", "~" * 40, "#" * 40, "0" * 80])
def test_a_file_without_a_whole_key_is_refused(key: str, tmp_path: Path) -> None:
    (tmp_path / "bad.key").write_text(f'curve\n    public-key = "{key}"\n')
    with pytest.raises(ConfigError, match=r"bad\.key (holds no CURVE key of 32 bytes|cannot be read)"):
        load_keys(tmp_path / "bad.key", is_secret=False)
