"""The worker's keys: whoever has none of the right ones reads nothing and says nothing."""

import struct
from pathlib import Path

import zmq
from zmq.auth import load_certificate
from zmq.utils import z85

from octavo_worker.config import WorkerConfig
from octavo_worker.errors import ConfigError

CURVE_KEY_BYTES = 32


def use_curve(socket: "zmq.Socket[bytes]", config: WorkerConfig) -> None:
    """Encrypt towards the scheduler, if keys are given."""
    if config.curve_key is None or config.curve_server_key is None:
        return
    socket.curve_publickey, socket.curve_secretkey = load_keys(config.curve_key, is_secret=True)
    socket.curve_serverkey = load_keys(config.curve_server_key, is_secret=False)[0]


def load_keys(path: Path, *, is_secret: bool) -> tuple[bytes, bytes]:
    """(public, secret) of a key file. Raises ConfigError."""
    try:
        public, secret = load_certificate(path)
        lengths = {len(z85.decode(key)) for key in (public, secret) if key is not None}
    except (OSError, ValueError) as error:
        raise ConfigError(f"key file {path} cannot be read: {error}") from error
    except (KeyError, struct.error):  # what z85 makes of characters that are none of its own
        lengths = set()
    if lengths != {CURVE_KEY_BYTES}:
        raise ConfigError(f"key file {path} holds no CURVE key of {CURVE_KEY_BYTES} bytes")
    if is_secret and secret is None:
        raise ConfigError(f"key file {path} holds no secret key; give the one that ends in .key_secret")
    return public, secret or b""
