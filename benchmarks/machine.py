"""The machine, and how much of it went to others while something was measured. Linux tells; elsewhere it stays unknown."""

import os
import platform
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
PROCESSOR = re.compile(r"^(?:model name|CPU part)\s*: (.+)$", re.MULTILINE)
IDLE_COLUMNS = (3, 4)  # idle, iowait
GUEST_COLUMN = 8  # guest time is counted in user time already


class Ticks(NamedTuple):
    """One process: its parent, and the ticks that it and its ended children have run."""

    pid: int
    parent: int
    ticks: int


def machine() -> dict[str, str | int]:
    """What figures of this machine are quoted with."""
    cpuinfo = PROC / "cpuinfo"
    named = PROCESSOR.search(cpuinfo.read_text()) if cpuinfo.exists() else None
    return {"processor": named[1] if named else platform.processor(), "cores": os.cpu_count() or 1}


def busy_ticks(line: str) -> int:
    """Of the first line of /proc/stat: what ran on any processor, and what a hypervisor gave to others."""
    values = [int(value) for value in line.split()[1:]]
    return sum(value for column, value in enumerate(values[:GUEST_COLUMN]) if column not in IDLE_COLUMNS)


def process_ticks(line: str) -> Ticks:
    """Of /proc/PID/stat. The name, in brackets, may hold anything."""
    pid, _, rest = line.partition(" (")
    fields = rest.rpartition(") ")[2].split()
    return Ticks(int(pid), int(fields[1]), sum(map(int, fields[11:15])))


def family_ticks(processes: Iterable[Ticks], root: int) -> int:
    """Of `root` and all that descends from it."""
    by_pid = {each.pid: each for each in processes}

    def is_family(pid: int) -> bool:
        while pid != root and pid in by_pid:
            pid = by_pid[pid].parent
        return pid == root

    return sum(each.ticks for each in by_pid.values() if is_family(each.pid))


def all_processes() -> Iterator[Ticks]:
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended
                yield process_ticks((folder / "stat").read_text())


class Counts(NamedTuple):
    """Ticks since the system started."""

    ours: int
    everybodys: int


class Watch:
    """From now on: what others run beside this process and its descendants."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._before = self.counts()

    def others_share(self) -> float | None:
        """Since this watch was made, of all processors together: 0 on a quiet machine, 1 if we got nothing."""
        after, seconds = self.counts(), time.monotonic() - self._started
        if self._before is None or after is None:
            return None
        others = (after.everybodys - self._before.everybodys) - (after.ours - self._before.ours)
        ticks = seconds * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1)
        return min(1.0, max(0.0, others / ticks))

    @staticmethod
    def counts() -> Counts | None:
        """Until now; None where the system does not tell."""
        stat = PROC / "stat"
        if not stat.exists():
            return None
        ours = family_ticks(all_processes(), os.getpid())
        return Counts(ours, busy_ticks(stat.read_text().partition("\n")[0]))
