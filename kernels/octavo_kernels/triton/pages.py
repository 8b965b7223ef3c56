"""Moving pages by kernels: within a pool, between pools, to and from a buffer where they lie one after the other.

Pages are uint8 [pages, page bytes] in memory that the device reaches: its own, or pinned main memory. Ids are int64 in main
memory; they go to the device through pinned buffers that take turns, so that nobody waits for it.
"""

from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from octavo_kernels.triton.device import Device, Mark, Queue
from octavo_kernels.triton.source.pages import copy_pages_kernel, zero_pages_kernel

BLOCK = 2048
"""Words that a program copies."""
WORDS = (torch.int64, torch.int32, torch.int16)
LEAST_IDS = 1024
TURNS = 3


class Pages:
    """Moves on any queue of a device. Those on one queue run in their order."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.lanes: dict[int, Lane] = {}  # by the identity of the queue

    def move(
        self, queue: Queue, source: Tensor, source_ids: np.ndarray, target: Tensor, target_ids: np.ndarray
    ) -> None:
        """target[target_ids[i]] = source[source_ids[i]]; all reads come before all writes."""
        assert source.shape[1] == target.shape[1], "pages of one size"
        if source.data_ptr() == target.data_ptr() and np.isin(target_ids, source_ids).any():
            staging = self.lane(queue).staging(len(source_ids), source.shape[1])
            self.gather(queue, source, source_ids, staging)
            self.scatter(queue, staging, target, target_ids)
            return
        sent = self.lane(queue).send(np.stack((source_ids, target_ids)))
        launch(queue, copy_pages_kernel, source, sent[0], target, sent[1])

    def gather(self, queue: Queue, pool: Tensor, ids: np.ndarray, buffer: Tensor) -> None:
        """buffer[i] = pool[ids[i]]."""
        self.move(queue, pool, ids, buffer, np.arange(len(ids)))

    def scatter(self, queue: Queue, buffer: Tensor, pool: Tensor, ids: np.ndarray) -> None:
        """pool[ids[i]] = buffer[i]."""
        self.move(queue, buffer, np.arange(len(ids)), pool, ids)

    def zero(self, queue: Queue, pool: Tensor, ids: np.ndarray) -> None:
        """pool[ids[i]] = 0."""
        launch(queue, zero_pages_kernel, pool, self.lane(queue).send(ids))

    def lane(self, queue: Queue) -> "Lane":
        if id(queue) not in self.lanes:
            self.lanes[id(queue)] = Lane(self.device, queue)
        return self.lanes[id(queue)]


class Lane:
    """What the moves on one queue keep. It grows to the largest one, and waits for the queue when it grows."""

    def __init__(self, device: Device, queue: Queue) -> None:
        self.device, self.queue = device, queue
        self.pages = torch.empty(0, dtype=torch.uint8, device=device.place)
        self.turn = 0
        self.free: list[Mark | None] = [None] * TURNS  # when the device has read what was sent in that turn
        self.make_room(LEAST_IDS)

    def make_room(self, count: int) -> None:
        """To send so many ids each time."""
        size = int(triton.next_power_of_2(count))
        self.host = [self.device.pinned(size * 8).view(torch.int64) for _ in range(TURNS)]
        self.ids = torch.empty(size, dtype=torch.int64, device=self.device.place)

    def send(self, ids: np.ndarray) -> Tensor:
        """The same ids on the device, until more are sent."""
        if ids.size > len(self.ids):
            self.queue.mark().wait()
            self.make_room(ids.size)
        self.turn = (self.turn + 1) % TURNS
        free, host, there = self.free[self.turn], self.host[self.turn][: ids.size], self.ids[: ids.size]
        if free is not None:
            free.wait()
        host.numpy()[:] = ids.reshape(-1)
        self.queue.do(lambda: there.copy_(host, non_blocking=True))
        self.free[self.turn] = self.queue.mark()
        return there.view(ids.shape)

    def staging(self, count: int, page_bytes: int) -> Tensor:
        """Room for so many pages, until more is asked for."""
        if len(self.pages) < count * page_bytes:
            self.queue.mark().wait()
            self.pages = self.pages.new_empty(count * page_bytes)
        return self.pages[: count * page_bytes].view(count, page_bytes)


def launch(queue: Queue, kernel: Any, *given: Tensor) -> None:
    """A kernel over pages and ids, in words as large as fit a page."""
    page_bytes, count = given[0].shape[1], given[1].numel()
    if not count:
        return
    word = next(word for word in WORDS if page_bytes % word.itemsize == 0)
    arguments = [each.view(word) if each.dtype == torch.uint8 else each for each in given]
    page_words = page_bytes // word.itemsize
    queue.launch(kernel, (count, triton.cdiv(page_words, BLOCK)), *arguments, page_words, BLOCK=BLOCK)
