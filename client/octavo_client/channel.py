"""gRPC channels: options, and which addresses are spoken to in plain text.

A unix socket or a loopback address is spoken to in plain text unless a CA file is given. Every other address gets TLS,
checked against the CA file or, without one, against the roots that gRPC ships.
"""

import json
from pathlib import Path
from typing import Any

import grpc

from octavo_client.addresses import SERVICE, is_local
from octavo_client.errors import ConfigError

# Retries end with the first message of an answer, so no token is ever asked for twice. Calls do not wait for a server to
# appear: "nobody answers" is worth more to a person than silence.
SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [{"service": SERVICE}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.2s",
                "maxBackoff": "5s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
            },
        }
    ],
}

OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # a minute otherwise, whatever the line before says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A scheduler that restarts is back within seconds; gRPC's own pauses grow to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.enable_retries", 1),
    ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
)
# A proxy set in the environment must not catch what never leaves the machine.
LOCAL_OPTIONS = (*OPTIONS, ("grpc.enable_http_proxy", 0))


def open_channel(
    address: str,
    ca_file: str | Path | None = None,
    cert_file: str | Path | None = None,
    key_file: str | Path | None = None,
) -> grpc.aio.Channel:
    """Opens a channel to "HOST:PORT" or "unix:PATH". Certificate and key are this client's own, for servers that ask.

    Raises ConfigError when a file cannot be read. It connects with the first call, so an address where nobody listens
    raises nothing here.
    """
    keys = credentials(address, ca_file, cert_file, key_file)
    if keys is None:
        return grpc.aio.insecure_channel(address, options=LOCAL_OPTIONS)
    return grpc.aio.secure_channel(address, keys, options=LOCAL_OPTIONS if is_local(address) else OPTIONS)


def credentials(
    address: str,
    ca_file: str | Path | None = None,
    cert_file: str | Path | None = None,
    key_file: str | Path | None = None,
) -> grpc.ChannelCredentials | None:
    """How to speak TLS to an address; None: plain text. Raises ConfigError when a file cannot be read."""
    if (cert_file is None) != (key_file is None):
        raise ConfigError("A client's certificate and its key belong together: give both or neither.")
    if ca_file is None and cert_file is None and is_local(address):
        return None
    roots = None if ca_file is None else _read(ca_file, "CA file")
    certificate = None if cert_file is None else _read(cert_file, "certificate")
    key = None if key_file is None else _read(key_file, "key file")
    return grpc.ssl_channel_credentials(roots, key, certificate)


def call_metadata(token_file: str | Path | None) -> tuple[tuple[str, str], ...]:
    """Returns the metadata sent with each call: the bearer token, if there is one. Raises ConfigError for a bad file."""
    if token_file is None:
        return ()
    token = _read(token_file, "token file").decode(errors="replace").strip()
    if not token.isascii() or not token.isprintable() or len(token.split()) != 1:
        raise ConfigError(f"The token file {token_file} must hold one token and nothing else.")
    return (("authorization", f"Bearer {token}"),)


def _read(path: str | Path, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"The {what} {path} cannot be read: {error.strerror}.") from error
