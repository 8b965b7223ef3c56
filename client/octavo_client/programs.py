"""Verbs that become another program, and how."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from octavo_client.errors import ConfigError

# Verb -> (module, what it does). Their flags are theirs alone.
PROGRAMS = {
    "scheduler": ("octavo_scheduler", "run a scheduler alone"),
    "worker": ("octavo_worker", "run a worker alone"),
    "keys": ("octavo_scheduler.keys", "make keys, certificate and token for several machines"),
    "record": ("octavo_scheduler.record_program", "run a scheduler and record what its core does"),
    "replay": ("octavo_scheduler.offline.replay", "replay a recorded log, or simulate it under other settings"),
}
DOCTOR_OF_LOGS = "octavo_scheduler.offline.doctor"
"""What `octavo doctor` becomes when it is given a log."""


def become(module: str, words: Sequence[str]) -> NoReturn:
    """Replaces this process by a program. Raises ConfigError where its package is not installed."""
    package = module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        extra = package.removeprefix("octavo_")
        raise ConfigError(f"This needs more than the client: pip install 'octavo[{extra}]'.")
    os.execv(sys.executable, [sys.executable, "-m", module, *words])
