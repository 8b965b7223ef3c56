"""One scheduler to a socket file: a lock beside it, held for the life of the process.

ZeroMQ and gRPC replace a socket file that they find, so that the file itself keeps nobody out. A lock is dropped by the
system when its holder dies, so that whatever a dead process left behind is in nobody's way.
"""

import fcntl
import os
import weakref
from pathlib import Path

from octavo_scheduler.errors import StartError


def socket_path(address: str) -> Path | None:
    """The socket file of a gRPC `unix:` or ZeroMQ `ipc://` address; None where there is none."""
    if address.startswith("unix:"):
        return Path(address.removeprefix("unix:").removeprefix("//"))
    path = address.removeprefix("ipc://")
    if path == address or path == "*" or path.startswith("@"):  # a name made up by ZeroMQ, an abstract socket
        return None
    return Path(path)


class PathLock:
    """Holds PATH.lock until `release` or the end of the process, which remove it.

    Raises StartError when somebody else holds it, or when no socket can be made at PATH.
    """

    def __init__(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise StartError(f"the folder {path.parent} of the socket {path} does not exist")
        if path.exists() and not path.is_socket():
            raise StartError(f"{path} is there and is not a socket")
        lock = Path(f"{path}.lock")
        try:
            descriptor = _lock(lock)
        except BlockingIOError as error:
            raise StartError(f"{path} is used by another scheduler") from error
        except OSError as error:
            raise StartError(f"{lock} cannot be locked: {error.strerror}") from error
        self.release = weakref.finalize(self, _unlock, lock, descriptor)


def _lock(lock: Path) -> int:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder removed the file between the two calls: try again


def _unlock(lock: Path, descriptor: int) -> None:
    lock.unlink(missing_ok=True)  # before the lock is let go: afterwards the file may be somebody else's
    os.close(descriptor)
