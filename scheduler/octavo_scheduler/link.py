"""The ZeroMQ end of the scheduler: one ROUTER socket that workers dial.

Used by one thread, except `wake`. Every connection gets a fresh routing id, so that a worker that dials again is a new
peer. Sending never blocks: a peer that is gone, or does not read, makes `send` answer False.
"""

import logging
import os
import re
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

from octavo_scheduler.errors import StartError
from octavo_scheduler.limits import ZMQ_MESSAGE_BYTES
from octavo_scheduler.lock import PathLock, socket_path

log = logging.getLogger("octavo.scheduler")

Peer = bytes

CURVE_KEY_BYTES = 32
OLDEST_LIBRARY = (4, 3, 5)
"""Older ones can be crashed or overflowed by whoever reaches the socket, CURVE or not."""

MAPPED = re.compile(r"\[::ffff:([\d.]+)\]")
"""How ZeroMQ calls an address of IPv4 where it speaks IPv6 too: whoever does not, cannot dial it."""

MOST_PENDING = 16
"""Messages that wait for a worker that does not take them."""
MOST_MESSAGES = 256
"""Messages handed over by one `receive`, so that a flood cannot keep the loop from planning."""


@dataclass(frozen=True)
class CurveFiles:
    """CURVE keys of the scheduler, and the folder with the public keys of workers that may join."""

    secret_key: Path
    allowed: Path


class RouterLink:
    """Binds `address`. Raises StartError when it is taken or one of the keys cannot be read."""

    def __init__(self, address: str, curve: CurveFiles | None = None, most_pending: int = MOST_PENDING) -> None:
        """`most_pending`: messages that may wait for one peer."""
        check_library(zmq.zmq_version_info())
        self._curve = curve
        if curve:
            check_keys(curve)
        path = socket_path(address)
        self._lock = PathLock(path) if path else None
        self._woken = self._waker = -1
        self._context = zmq.Context()
        self._authenticator = self._admit_only(curve) if curve else None
        self._socket = self._context.socket(zmq.ROUTER)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        try:
            self._configure(curve, most_pending)
            previous = os.umask(0o177)
            try:
                self._socket.bind(address)
            finally:
                os.umask(previous)
        except (zmq.ZMQError, OSError) as error:
            self.close()
            raise StartError(f"cannot listen for workers on {address}: {error}") from error
        self.address = MAPPED.sub(r"\1", self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._has_lost_a_peer = False
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        self._poller.register(self._woken, zmq.POLLIN)

    def _configure(self, curve: CurveFiles | None, most_pending: int) -> None:
        socket = self._socket
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.SNDHWM, most_pending)
        socket.setsockopt(zmq.RCVHWM, 1000)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, ZMQ_MESSAGE_BYTES)
        socket.setsockopt(zmq.HANDSHAKE_IVL, 5000)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 6000)
        socket.setsockopt(zmq.HEARTBEAT_TTL, 6000)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.IPV6, 1)
        if curve:
            socket.curve_publickey, socket.curve_secretkey = zmq.auth.load_certificate(curve.secret_key)
            socket.curve_server = True

    def reload(self) -> None:
        """Reads the allow-list again, for workers that dial from now on. Raises StartError; then it is that of before."""
        if self._authenticator is not None and self._curve is not None:
            check_keys(self._curve)
            self._authenticator.configure_curve(domain="*", location=str(self._curve.allowed))

    def _admit_only(self, curve: CurveFiles) -> ThreadAuthenticator:
        authenticator = ThreadAuthenticator(self._context)
        authenticator.start()
        authenticator.configure_curve(domain="*", location=str(curve.allowed))
        return authenticator

    def receive(self, timeout: float) -> list[tuple[Peer, bytes]]:
        """Waits up to `timeout` seconds for a message or a `wake`; returns the messages that are there."""
        for ready, _ in self._poller.poll(max(0, int(timeout * 1000))):
            if ready == self._woken:
                os.read(self._woken, 4096)
            if ready is self._monitor:
                self._read_monitor()
        messages: list[tuple[Peer, bytes]] = []
        while len(messages) < MOST_MESSAGES:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            messages.append((frames[0], frames[1] if len(frames) == 2 else b""))
        return messages

    def _read_monitor(self) -> None:
        self._has_lost_a_peer = True
        with suppress(zmq.Again):
            while True:
                self._monitor.recv_multipart(zmq.NOBLOCK)

    def has_lost_a_peer(self) -> bool:
        """Whether a connection was closed since this was asked last."""
        found, self._has_lost_a_peer = self._has_lost_a_peer, False
        return found

    def send(self, peer: Peer, frame: bytes) -> bool:
        """Whether the peer is there and takes the message."""
        try:
            self._socket.send_multipart([peer, frame], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def wake(self) -> None:
        """Ends a running `receive`. May be called by any thread, and by one event loop also after `close`."""
        with suppress(BlockingIOError):
            if self._waker >= 0:
                os.write(self._waker, b"!")

    def close(self) -> None:
        self._monitor.close()
        self._socket.close()
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()
        if self._lock is not None:
            self._lock.release()
        for end in (self._woken, self._waker):
            if end >= 0:
                os.close(end)
        self._woken = self._waker = -1


def check_library(version: tuple[int, int, int]) -> None:
    """Raises StartError."""
    if version < OLDEST_LIBRARY:
        have, need = (".".join(map(str, numbers)) for numbers in (version, OLDEST_LIBRARY))
        raise StartError(f"libzmq {have} has known holes; install pyzmq with {need} or newer")


def check_keys(curve: CurveFiles) -> None:
    """Raises StartError, which names the file, where a key is missing or broken: ZeroMQ would go on without it."""
    if _read_keys(curve.secret_key)[1] is None:
        raise StartError(f"{curve.secret_key} has no secret key")
    try:
        files = [path for path in sorted(curve.allowed.iterdir()) if path.suffix == ".key"]
    except OSError as error:
        raise StartError(f"the folder {curve.allowed} cannot be read: {error.strerror}") from error
    for file in files:
        _read_keys(file)
    if not files:
        log.warning("%s holds no .key file: no worker may join", curve.allowed)


def _read_keys(path: Path) -> tuple[bytes, bytes | None]:
    """Public and secret key of a file, the latter None where only the former is there."""
    try:
        path.read_bytes()  # says why it cannot be read, which load_certificate does not
        public, secret = zmq.auth.load_certificate(path)
        lengths = [len(z85.decode(key)) for key in (public, secret) if key is not None]
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, struct.error) as error:
        raise StartError(f"{path} holds no CURVE key") from error
    if set(lengths) != {CURVE_KEY_BYTES}:
        raise StartError(f"{path} holds a CURVE key of {lengths[0]} bytes; it must have {CURVE_KEY_BYTES}")
    return public, secret


def make_curve_keys(folder: Path, name: str) -> None:
    """Writes `name`.key (public) and `name`.key_secret into `folder`."""
    zmq.auth.create_certificates(folder, name)
