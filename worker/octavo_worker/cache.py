"""The page pool: a device tier that kernels read and write, and a host tier for pages swapped out."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from octavo_kernels.ops import Array as Pool
from octavo_kernels.ops import Geometry, Ops

from octavo_worker.batch import Moves
from octavo_worker.config import WorkerConfig
from octavo_worker.errors import ConfigError
from octavo_worker.limits import Limits
from octavo_worker.slots import Array

CONTROL_GROUP = Path("/sys/fs/cgroup")


class PageCache:
    """Pages are 1..device_pages and 1..host_pages; page 0 of each tier is the null page. Counts what it moves.

    Moves between the tiers may run beside the steps that follow, as long as these name no page that is moved.
    """

    def __init__(self, geometry: Geometry, ops: Ops, *, pages: int, host_pages: int) -> None:
        self.geometry, self.ops = geometry, ops
        self.device_pages, self.host_pages = pages, host_pages
        self.pool = new_pool(geometry, pages, ops, ops.new_pool)
        self.host = new_pool(geometry, host_pages, ops, ops.new_host_pool)
        self.moving: list[Array] = []  # device pages on their way between the tiers
        self.swapped_bytes = 0
        self.pages_copied = 0

    def limits(self, max_step_tokens: int, vocab_size: int) -> Limits:
        """Of plans."""
        return Limits(self.device_pages, self.host_pages, self.geometry.page_size, max_step_tokens, vocab_size)

    def swap_out(self, moves: Moves) -> None:
        """Device to host."""
        self.move(moves, self.pool, self.host)
        self.swapped(moves.source)

    def swap_in(self, moves: Moves) -> None:
        """Host to device."""
        self.move(moves, self.host, self.pool)
        self.swapped(moves.target)

    def swapped(self, pages: Array) -> None:
        if len(pages):
            self.moving.append(pages)
            self.swapped_bytes += len(pages) * self.geometry.page_bytes

    def settle(self, pages: Array) -> None:
        """What comes next names these pages: it waits if one of them is on its way."""
        if self.moving and np.isin(np.concatenate(self.moving), pages).any():
            self.ops.fence()
            self.moving.clear()

    def copy(self, moves: Moves) -> None:
        """Device to device."""
        self.settle(np.concatenate((moves.source, moves.target)))
        self.move(moves, self.pool, self.pool)
        self.pages_copied += len(moves.source)

    def zero(self, pages: Array) -> None:
        """Set device pages to zero."""
        if len(pages):
            self.settle(pages)
            self.ops.zero_pages(self.pool, pages)

    def move(self, moves: Moves, source: Pool, target: Pool) -> None:
        if len(moves.source):
            self.ops.move_pages(source, moves.source, target, moves.target)


def open_cache(config: WorkerConfig, geometry: Geometry, ops: Ops, least: Callable[..., tuple[int, ...]]) -> PageCache:
    """As large as the configuration says, and as all ranks of a group can have it: `least` of each. Raises ConfigError."""
    pages, host_pages = least(num_device_pages(config, geometry, ops), num_host_pages(config, geometry))
    return PageCache(geometry, ops, pages=pages, host_pages=host_pages)


def new_pool(geometry: Geometry, pages: int, ops: Ops, make: Callable[[Geometry, int], Pool]) -> Pool:
    """The array of a tier. Raises ConfigError when there is not so much memory."""
    size = (pages + 1) * geometry.page_bytes
    problem = f"{pages} pages take {size / 2**30:.1f} GiB, more than there is; ask for fewer or for less memory"
    is_on_device = ops.memory is not None and make is ops.new_pool
    if not is_on_device and size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise ConfigError(problem)
    try:
        return make(geometry, pages)
    except MemoryError as error:
        raise ConfigError(problem) from error


def num_device_pages(config: WorkerConfig, geometry: Geometry, ops: Ops) -> int:
    """Usable pages: as told, or as many as fit the told bytes or the told share of memory."""
    if config.pages is not None:
        return config.pages
    room = config.kv_cache_memory or room_for_pages(config, ops)
    pages = room // geometry.page_bytes - 1  # the null page takes room too
    if pages < 1:
        raise ConfigError(
            f"{room} bytes hold no page of {geometry.page_bytes} bytes; raise --kv-cache-memory, --kv-memory-share "
            "or --gpu-memory-utilization"
        )
    return min(pages, 2**31 - 2)


def room_for_pages(config: WorkerConfig, ops: Ops) -> int:
    """Bytes. Of a device of our own we take what `gpu_memory_utilization` says, less what this worker has taken already:
    what other processes take and give back does not change it. Main memory is everybody's: a share of what is free."""
    if ops.memory is None:
        return int(free_memory() * config.kv_memory_share)
    memory = ops.memory()
    return min(int(memory.total * config.gpu_memory_utilization) - memory.own, memory.free)


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
