import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from octavo_scheduler.access import TlsFiles, is_local, require_keys, server_credentials
from octavo_scheduler.config import parser, read_config
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
    for flag in ("--workers",) if address.startswith("tcp:") else ("--listen", "--admin-listen"):
        with pytest.raises(StartError, match=r"other machines; give --.*or listen on 127.0.0.1"):
            read_config([*MODEL, flag, address])


FILES = ["--tls-cert", "a", "--tls-key", "b", "--token-file", "c", "--admin-token-file", "d"]


@pytest.mark.parametrize("left_out", [0, 2, 4, 6])
def test_an_address_that_others_reach_needs_every_one_of_its_keys(left_out: int) -> None:
    assert read_config([*MODEL, "--listen", "0.0.0.0:1", "--admin-listen", "0.0.0.0:2", *FILES])
    some = FILES[:left_out] + FILES[left_out + 2 :]
    with pytest.raises(StartError, match=r"belong together|other machines|needs --token-file too"):
        read_config([*MODEL, "--listen", "0.0.0.0:1", "--admin-listen", "0.0.0.0:2", *some])


def test_every_flag_that_names_an_address_to_listen_on_is_checked() -> None:
    """A new one must be added to the tests above, and to `Config`."""
    found = [flag for flag in parser()._option_string_actions if re.search("listen|workers|address|bind|port", flag)]
    assert sorted(found) == ["--admin-listen", "--listen", "--workers"]


def test_certificates_of_clients_are_asked_for_over_tls_only() -> None:
    with pytest.raises(StartError, match="--client-ca asks clients for a certificate, which takes TLS"):
        read_config([*MODEL, "--client-ca", "a"])


def test_one_half_of_a_pair_of_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="belong together"):
        read_config([*MODEL, "--tls-cert", str(tmp_path)])
    with pytest.raises(StartError, match="other machines"):
        read_config([*MODEL, "--listen", "0.0.0.0:1", "--tls-cert", "a", "--tls-key", "b"])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("keys")
    make_keys([str(out)])
    return out / "scheduler"


def test_certificate_and_key_must_be_readable_and_belong_together(keys: Path, tmp_path: Path) -> None:
    assert server_credentials(TlsFiles(keys / "tls.crt", keys / "tls.key"))
    assert server_credentials(TlsFiles(keys / "tls.crt", keys / "tls.key", keys / "client-ca.crt"))
    with pytest.raises(StartError, match=r"tls\.key holds no certificate in PEM"):
        server_credentials(TlsFiles(keys / "tls.crt", keys / "tls.key", keys / "tls.key"))
    (tmp_path / "bad").write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    with pytest.raises(StartError, match=r"bad holds no certificate in PEM"):
        server_credentials(TlsFiles(tmp_path / "bad", keys / "tls.key"))
    with pytest.raises(StartError, match=r"tls\.crt holds no private key in PEM"):
        server_credentials(TlsFiles(keys / "tls.crt", keys / "tls.crt"))
    make_keys([str(tmp_path / "other")])
    other = tmp_path / "other" / "scheduler" / "tls.key"
    with pytest.raises(StartError, match=rf"the key in {other} is not that of the certificate in {keys}/tls\.crt"):
        server_credentials(TlsFiles(keys / "tls.crt", other))


def test_a_key_with_a_password_is_a_start_error(keys: Path, tmp_path: Path) -> None:
    key = load_pem_private_key((keys / "tls.key").read_bytes(), password=None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password"))
    (tmp_path / "locked").write_bytes(locked)
    with pytest.raises(StartError, match="locked holds no private key in PEM, readable without a password"):
        server_credentials(TlsFiles(keys / "tls.crt", tmp_path / "locked"))
