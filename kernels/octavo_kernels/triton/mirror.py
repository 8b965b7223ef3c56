"""Arrays of main memory that have a copy on the device, kept up to date by small patches.

What changed is collected word by word, goes to the device in one copy, and one kernel puts the words in their places. The
buffers that are copied from take turns, so that the thread that fills them need not wait for the device.
"""

from dataclasses import dataclass

import numpy as np
import torch
import triton

from octavo_kernels.triton.device import Device, Mark
from octavo_kernels.triton.source.mirror import patch_kernel
from octavo_kernels.triton.tensors import DTYPE_OF_NUMPY

BLOCK = 1024
WORD = 4
PATCH_BYTES = 8 + WORD
TURNS = 3


@dataclass(slots=True)
class Copy:
    """An array and its copy on the device."""

    host: np.ndarray
    tensor: torch.Tensor
    first_word: int  # of the copy, counted from where the mirror's base lies


@dataclass(frozen=True, slots=True)
class OnItsWay:
    """See ops.Fetched."""

    elements: torch.Tensor
    marks: tuple[Mark, Mark]  # of both queues

    def is_there(self) -> bool:
        return all(mark.is_reached() for mark in self.marks)

    def wait(self) -> np.ndarray:
        for mark in self.marks:
            mark.wait()
        return np.asarray(self.elements.numpy())


@dataclass(slots=True)
class Staging:
    """Patches on their way. `free`: when the device has read them."""

    host: torch.Tensor
    device: torch.Tensor
    free: Mark | None = None


class Mirror:
    """All arrays shared with one device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.base = torch.zeros(1, dtype=torch.int32, device=device.place)
        self.copies: dict[int, Copy] = {}  # by the identity of the array
        self.by_tensor: dict[int, Copy] = {}  # by the address of the copy
        self.written: list[tuple[Copy, int, int]] = []  # words of a copy: first, count
        self.stagings: list[Staging | None] = [None] * TURNS
        self.turn = 0

    def share(self, host: np.ndarray) -> torch.Tensor:
        """The copy, which has what the array has now."""
        if host.itemsize % WORD or not host.flags.c_contiguous:
            raise ValueError(
                f"arrays of whole words that lie in one piece can be shared, not {host.dtype} {host.shape}"
            )
        tensor = torch.zeros(host.shape, dtype=DTYPE_OF_NUMPY[host.dtype], device=self.device.place)
        tensor.copy_(torch.from_numpy(host))
        copy = Copy(host, tensor, (tensor.data_ptr() - self.base.data_ptr()) // WORD)
        self.copies[id(host)] = self.by_tensor[tensor.data_ptr()] = copy
        return tensor

    def host(self, tensor: torch.Tensor) -> np.ndarray | None:
        """The array that a tensor is the copy of, if it is one."""
        copy = self.by_tensor.get(tensor.data_ptr())
        return None if copy is None else copy.host

    def changed(self, host: np.ndarray, first: int, count: int) -> None:
        """Elements of a shared array, counted flat, were written."""
        words = host.itemsize // WORD
        self.written.append((self.copies[id(host)], first * words, count * words))

    def copied(self, host: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> None:
        """Rows of a shared array were copied; the device copies its own, which may know more."""
        self.flush()
        tensor = self.copies[id(host)].tensor
        source, target = (torch.tensor(ids, dtype=torch.int64).to(self.device.place) for ids in (sources, targets))
        self.device.main.do(lambda: tensor.index_copy_(0, target, tensor.index_select(0, source)))

    def fetch(self, host: np.ndarray, count: int) -> "OnItsWay":
        """The first elements of what the device has, on their way to main memory."""
        tensor, main = self.copies[id(host)].tensor, self.device.main
        there = self.device.pinned(max(count, 1) * host.itemsize).view(tensor.dtype)[:count]
        main.do(lambda: there.copy_(tensor[:count], non_blocking=True))
        return OnItsWay(there, (main.mark(), self.device.side.mark()))

    def flush(self) -> None:
        """Bring the copies up to date, on the main queue."""
        count = sum(count for _, _, count in self.written)
        if not count:
            return
        staging = self.next_staging(count)
        index, value = cut(staging.host, count)
        fill(self.written, index.numpy(), value.numpy())
        self.written.clear()
        queue, size = self.device.main, count * PATCH_BYTES
        queue.do(lambda: staging.device[:size].copy_(staging.host[:size], non_blocking=True))
        grid = (triton.cdiv(count, BLOCK),)
        queue.launch(patch_kernel, grid, self.base, *cut(staging.device, count), count, BLOCK=BLOCK)
        staging.free = queue.mark()

    def next_staging(self, count: int) -> Staging:
        """One that the device has read, with room for `count` patches."""
        self.turn = (self.turn + 1) % TURNS
        staging = self.stagings[self.turn]
        if staging is not None and staging.free is not None:
            staging.free.wait()
        if staging is None or staging.host.numel() < count * PATCH_BYTES:
            size = triton.next_power_of_2(max(count, BLOCK)) * PATCH_BYTES
            there = torch.zeros(size, dtype=torch.uint8, device=self.device.place)
            staging = self.stagings[self.turn] = Staging(self.device.pinned(size), there)
        return staging


def cut(staging: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Room for indices, int64 [count], and words, int32 [count]."""
    return staging[: count * 8].view(torch.int64), staging[count * 8 : count * PATCH_BYTES].view(torch.int32)


def fill(written: list[tuple[Copy, int, int]], index: np.ndarray, value: np.ndarray) -> None:
    """Write down where each changed word goes, and what it is."""
    at = 0
    for copy, first, count in written:
        start = copy.first_word + first
        index[at : at + count] = np.arange(start, start + count)
        value[at : at + count] = copy.host.reshape(-1).view(np.int32)[first : first + count]
        at += count
