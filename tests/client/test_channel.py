import datetime
import ipaddress
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from octavo_client import AsyncClient, errors
from octavo_client.addresses import is_local
from octavo_client.channel import OPTIONS, call_metadata

from tests.doubles.inference_server import InferenceServer
from tests.patience import PATIENCE


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:50051", True),
        ("127.8.9.1:1", True),
        ("localhost:50051", True),
        ("[::1]:50051", True),
        ("unix:/tmp/a.sock", True),
        ("10.0.0.1:50051", False),
        ("0.0.0.0:50051", False),
        ("127.0.0.1.example.org:50051", False),
        ("localhost.example.org:50051", False),
        ("scheduler:50051", False),
        ("dns:///localhost:50051", False),
    ],
)
def test_only_loopback_and_unix_sockets_are_local(address: str, expected: bool) -> None:
    assert is_local(address) is expected


def test_the_channel_keeps_itself_alive_and_takes_large_messages() -> None:
    options = dict(OPTIONS)
    assert options["grpc.keepalive_time_ms"] == 30_000
    assert options["grpc.keepalive_permit_without_calls"] == 1
    assert options["grpc.max_receive_message_length"] == 16 << 20


@pytest.mark.parametrize("content", ["", " \n", "two words", "schlüssel"])
def test_a_token_file_without_a_token_is_an_error_and_never_no_token(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(errors.ConfigError, match="must hold one token"):
        call_metadata(tmp_path / "token")


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"token file .*/none cannot be read: No such file or directory\."):
        AsyncClient(token_file=tmp_path / "none")
    with pytest.raises(errors.ConfigError, match=r"CA file .*/none cannot be read"):
        AsyncClient(ca_file=tmp_path / "none")


async def test_a_call_carries_token_and_trusts_only_the_ca_file(tmp_path: Path) -> None:
    key, certificate = make_certificate()
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "token").write_text("secret\n")
    server = InferenceServer(token="secret")
    await server.start(tls=grpc.ssl_server_credentials([(key, certificate)]))
    async with AsyncClient(server.address, ca_file=tmp_path / "tls.crt", token_file=tmp_path / "token") as client:
        assert (await client.generate("one")).outputs[0].text == "ONE "
        assert (await client.status()).model == "double"
    async with AsyncClient(server.address, ca_file=tmp_path / "tls.crt") as client:
        with pytest.raises(errors.Unauthenticated):
            await client.generate("one")
    async with AsyncClient(server.address, token_file=tmp_path / "token") as client:
        with pytest.raises(errors.Unavailable):  # plain text to a TLS port
            await client.list_models(timeout=PATIENCE)
    await server.stop()


def make_certificate() -> tuple[bytes, bytes]:
    """Returns a private key and a certificate for 127.0.0.1 that signs itself, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "octavo test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)
