"""The page pool: a device tier that kernels read and write, and a host tier for pages swapped out."""

import os
from pathlib import Path

from octavo_kernels.ops import Array as Pool
from octavo_kernels.ops import Geometry, Ops

from octavo_worker.batch import Moves
from octavo_worker.config import WorkerConfig
from octavo_worker.errors import ConfigError
from octavo_worker.slots import Array

CONTROL_GROUP = Path("/sys/fs/cgroup")


class PageCache:
    """Pages are 1..device_pages and 1..host_pages; page 0 of each tier is the null page. Counts what it moves."""

    def __init__(self, geometry: Geometry, ops: Ops, *, pages: int, host_pages: int) -> None:
        self.geometry, self.ops = geometry, ops
        self.device_pages, self.host_pages = pages, host_pages
        self.pool = new_pool(geometry, pages, ops)
        self.host = new_pool(geometry, host_pages, ops)
        self.swapped_bytes = 0
        self.pages_copied = 0

    def swap_out(self, moves: Moves) -> None:
        """Device to host."""
        self.move(moves, self.pool, self.host)
        self.swapped_bytes += len(moves.source) * self.geometry.page_bytes

    def swap_in(self, moves: Moves) -> None:
        """Host to device."""
        self.move(moves, self.host, self.pool)
        self.swapped_bytes += len(moves.source) * self.geometry.page_bytes

    def copy(self, moves: Moves) -> None:
        """Device to device."""
        self.move(moves, self.pool, self.pool)
        self.pages_copied += len(moves.source)

    def zero(self, pages: Array) -> None:
        """Set device pages to zero."""
        if len(pages):
            self.ops.zero_pages(self.pool, pages)

    def move(self, moves: Moves, source: Pool, target: Pool) -> None:
        if len(moves.source):
            self.ops.move_pages(source, moves.source, target, moves.target)


def new_pool(geometry: Geometry, pages: int, ops: Ops) -> Pool:
    """The array of a tier. Raises ConfigError when there is not so much memory."""
    size = (pages + 1) * geometry.page_bytes
    problem = f"{pages} pages take {size / 2**30:.1f} GiB, more than there is; ask for fewer or for less memory"
    if size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise ConfigError(problem)
    try:
        return ops.new_pool(geometry, pages)
    except MemoryError as error:
        raise ConfigError(problem) from error


def num_device_pages(config: WorkerConfig, geometry: Geometry) -> int:
    """Usable pages: as told, or as many as fit the told bytes or the told share of free memory."""
    if config.pages is not None:
        return config.pages
    room = config.kv_cache_memory or int(free_memory() * config.kv_memory_share)
    pages = room // geometry.page_bytes - 1  # the null page takes room too
    if pages < 1:
        raise ConfigError(
            f"{room} bytes hold no page of {geometry.page_bytes} bytes; raise --kv-cache-memory or --kv-memory-share"
        )
    return min(pages, 2**31 - 2)


def num_host_pages(config: WorkerConfig, geometry: Geometry) -> int:
    """Usable pages of the host tier."""
    return config.host_pages if config.host_pages is not None else config.swap_space // geometry.page_bytes


def free_memory() -> int:
    """Bytes that could be taken now."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # unlike SC_AVPHYS_PAGES it counts caches that the system would give up
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = CONTROL_GROUP / "memory.max", CONTROL_GROUP / "memory.current"
    if limit.exists() and (text := limit.read_text().strip()) != "max":
        free = min(free, int(text) - int(used.read_text()))
    return max(free, 0)
