"""The TCP port that front processes share, held by their scheduler: it stays theirs while they come and go."""

import errno
import socket
import time

from octavo_scheduler.errors import StartError

PATIENCE_SECONDS = 3.0
"""The front processes of a scheduler that was killed take a moment to notice."""
BETWEEN_TRIES_SECONDS = 0.05


class SharedPort:
    """Bound and never listening, so that it gets no connections. Raises StartError when others listen there."""

    def __init__(self, listen: str, patience: float = PATIENCE_SECONDS) -> None:
        host, _, port = listen.rpartition(":")
        give_up_at = time.monotonic() + patience
        while True:
            try:
                self._socket = _held(host.strip("[]"), int(port))
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > give_up_at:
                    words = error.strerror or str(error)
                    raise StartError(f"cannot listen on {listen}: {words}") from error
            time.sleep(BETWEEN_TRIES_SECONDS)
        self.address = f"{host}:{self._socket.getsockname()[1]}"

    def release(self) -> None:
        self._socket.close()


def _held(host: str, port: int) -> socket.socket:
    family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    if port:
        _bound(family, place, is_shared=False).close()  # raises OSError where others listen, who might share it
    return _bound(family, place, is_shared=True)


def _bound(family: int, place: tuple[object, ...], *, is_shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(is_shared))
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(place)
    except OSError:
        made.close()
        raise
    return made
