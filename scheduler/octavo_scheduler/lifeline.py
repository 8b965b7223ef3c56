"""Ends this process in order when its parent is gone: the parent holds the other end of a pipe and never writes."""

import os
import signal
import threading


def watch_lifeline(descriptor: int) -> None:
    """Sends SIGTERM to this process when `descriptor` reaches end of file."""

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
