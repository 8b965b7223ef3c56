"""Ends this process in order when its parent is gone: the parent holds the other end of a pipe and never writes."""

import fcntl
import os
import signal
import threading
import time

from octavo_scheduler.errors import StartError

SECONDS_TO_END = 2.0
"""For running streams: the workers of a parent that is gone are gone too."""


def watch_lifeline(descriptor: int) -> None:
    """Sends SIGTERM to this process when `descriptor` reaches end of file, and a second one that cuts the end short.

    Raises StartError when the descriptor cannot be read.
    """
    try:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except (OSError, ValueError, OverflowError) as error:
        raise StartError(f"--lifeline {descriptor} is not an open file descriptor") from error
    if mode == os.O_WRONLY:
        raise StartError(f"--lifeline {descriptor} is not the read end of a pipe")

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_END)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
