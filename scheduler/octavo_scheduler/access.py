"""Who may connect: loopback and unix sockets freely, anything wider only with keys. No switch turns this off."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

import grpc

from octavo_scheduler.errors import StartError


@dataclass(frozen=True)
class TlsFiles:
    """Certificate and key of the server; with `client_ca` only clients with a certificate of these may connect."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


def is_local(address: str) -> bool:
    """Whether a gRPC or ZeroMQ address can be reached from this machine only."""
    for scheme in ("unix:", "ipc://", "inproc://"):
        if address.startswith(scheme):
            return True
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_keys(address: str, *, has_keys: bool, remedy: str) -> None:
    """Raises StartError for an address that others can reach when there are no keys to keep them out."""
    if not is_local(address) and not has_keys:
        raise StartError(f"{address} can be reached from other machines; {remedy}, or listen on 127.0.0.1")


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Raises StartError, which names the file, for what gRPC would refuse without saying why."""
    from cryptography.exceptions import UnsupportedAlgorithm  # it takes a while, and without TLS nobody needs it
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    chain, secret = _read_certificates(files.certificate), read_file(files.key)
    trusted = _read_certificates(files.client_ca) if files.client_ca else None
    try:
        private_key = load_pem_private_key(secret, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StartError(f"{files.key} holds no private key in PEM, readable without a password") from error
    if private_key.public_key() != chain.public_key:
        raise StartError(f"the key in {files.key} is not that of the certificate in {files.certificate}")
    roots = trusted.content if trusted else None
    return grpc.ssl_server_credentials([(secret, chain.content)], roots, require_client_auth=trusted is not None)


@dataclass(frozen=True)
class _Certificates:
    content: bytes
    public_key: object
    """Of the first."""


def _read_certificates(path: Path) -> _Certificates:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    content = read_file(path)
    try:
        return _Certificates(content, x509.load_pem_x509_certificates(content)[0].public_key())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise StartError(f"{path} holds no certificate in PEM") from error


def read_file(path: Path) -> bytes:
    """Raises StartError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from error
