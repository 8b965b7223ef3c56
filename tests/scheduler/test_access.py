from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from octavo_scheduler.access import is_local, read_token, require_keys, server_credentials
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


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("keys")
    make_keys([str(out)])
    return out / "scheduler"


def test_certificate_and_key_must_be_readable_and_belong_together(keys: Path, tmp_path: Path) -> None:
    assert server_credentials(keys / "tls.crt", keys / "tls.key")
    (tmp_path / "bad").write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    with pytest.raises(StartError, match=r"bad holds no certificate in PEM"):
        server_credentials(tmp_path / "bad", keys / "tls.key")
    with pytest.raises(StartError, match=r"tls\.crt holds no private key in PEM"):
        server_credentials(keys / "tls.crt", keys / "tls.crt")
    make_keys([str(tmp_path / "other")])
    other = tmp_path / "other" / "scheduler" / "tls.key"
    with pytest.raises(StartError, match=rf"the key in {other} is not that of the certificate in {keys}/tls\.crt"):
        server_credentials(keys / "tls.crt", other)


def test_a_key_with_a_password_is_a_start_error(keys: Path, tmp_path: Path) -> None:
    key = load_pem_private_key((keys / "tls.key").read_bytes(), password=None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password"))
    (tmp_path / "locked").write_bytes(locked)
    with pytest.raises(StartError, match="locked holds no private key in PEM, readable without a password"):
        server_credentials(keys / "tls.crt", tmp_path / "locked")
