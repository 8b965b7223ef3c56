"""Moving pages by Triton kernels: within a pool, between pools and buffers, on either queue, whatever a page's size."""

import numpy as np
import pytest
import torch
from octavo_kernels.triton import pages as module
from octavo_kernels.triton.pages import Pages
from octavo_kernels.triton.paper import Paper
from torch import Tensor

SIZES = [2, 6, 12, 4096, 16_384 + 8, 40_962]
"""In bytes: words of 2, of 4 and of 8; less than a program copies, and more."""


def pages(count: int, size: int, seed: int = 0) -> Tensor:
    """All bytes occur: NaN with payloads, infinities and denormals among them."""
    return torch.randint(0, 256, (count, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def some(random: np.random.Generator, of: int, count: int) -> np.ndarray:
    """Different ids."""
    return random.permutation(of)[:count].astype(np.int64)


@pytest.mark.parametrize("size", SIZES)
def test_bytes_arrive_unchanged_where_they_belong_and_nowhere_else(size: int) -> None:
    device, source, target = Paper(), pages(9, size), pages(7, size, seed=1)
    wanted = target.clone()
    wanted[[6, 0, 3]] = source[[1, 8, 4]]
    Pages(device).move(device.main, source, np.array([1, 8, 4]), target, np.array([6, 0, 3]))
    assert torch.equal(target, wanted)
    assert torch.equal(source, pages(9, size))


@pytest.mark.parametrize("seed", range(30))
def test_within_a_pool_all_reads_come_before_all_writes(seed: int) -> None:
    """Chains, circles, pages that stay, one page to many places."""
    device, random = Paper(), np.random.default_rng(seed)
    pool = pages(12, 24)
    targets = some(random, 12, int(random.integers(1, 13)))
    sources = random.integers(0, 12, len(targets))
    wanted = pool.clone()
    wanted[targets] = pool[sources]
    Pages(device).move(device.main, pool, sources, pool, targets)
    assert torch.equal(pool, wanted)


def test_only_pages_that_overlap_are_staged() -> None:
    device = Paper()
    moving, pool = Pages(device), pages(8, 24)
    moving.move(device.main, pool, np.array([1, 2]), pool, np.array([3, 4]))
    assert moving.lane(device.main).pages.numel() == 0
    moving.move(device.main, pool, np.array([1, 2]), pool, np.array([2, 3]))
    assert moving.lane(device.main).pages.numel() == 2 * 24


@pytest.mark.parametrize("size", SIZES)
def test_pages_go_to_a_buffer_one_after_the_other_and_come_back(size: int) -> None:
    device, pool = Paper(), pages(10, size)
    ids, moving = np.array([7, 2, 9, 4]), Pages(device)
    buffer = device.pinned(5 * size).view(5, size).fill_(77)
    moving.gather(device.side, pool, ids, buffer)
    assert torch.equal(buffer[:4], pool[ids])
    assert bool((buffer[4] == 77).all())
    pool.zero_()
    moving.scatter(device.side, buffer, pool, ids[::-1].copy())
    assert torch.equal(pool[ids[::-1].copy()], pages(10, size)[ids])
    assert not pool[[0, 1, 3, 5, 6, 8]].any()


@pytest.mark.parametrize("size", SIZES)
def test_pages_are_set_to_zero_and_no_others(size: int) -> None:
    device, pool = Paper(), pages(6, size) | 1
    Pages(device).zero(device.main, pool, np.array([5, 0, 2]))
    assert not pool[[5, 0, 2]].any()
    assert bool(pool[[1, 3, 4]].all())


def test_no_pages_are_moved_without_a_launch() -> None:
    device, none, pool = Paper(), np.zeros(0, np.int64), pages(3, 8)
    moving = Pages(device)
    moving.move(device.main, pool, none, pool, none)
    moving.gather(device.main, pool, none, pages(0, 8))
    moving.zero(device.main, pool, none)
    assert torch.equal(pool, pages(3, 8))


@pytest.mark.parametrize("is_main", [True, False])
def test_moves_that_wait_for_a_late_device_keep_their_ids(is_main: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than buffers take turns, some larger than all before, and given in arrays that change at once."""
    monkeypatch.setattr(module, "LEAST_IDS", 8)
    device, random = Paper(is_main_late=True, is_side_late=True), np.random.default_rng(2)
    queue = device.main if is_main else device.side
    moving, pool, wanted = Pages(device), pages(60, 8), pages(60, 8)
    for count in (3, 7, 9, 2, 15, 25, *range(1, 3 * module.TURNS)):
        sources, targets = some(random, 60, count), some(random, 60, count)
        wanted[targets] = wanted[sources]
        moving.move(queue, pool, sources, pool, targets)
        sources.fill(0)
        targets.fill(0)
    queue.mark().wait()
    assert torch.equal(pool, wanted)


def test_a_late_device_is_not_waited_for() -> None:
    device = Paper(is_side_late=True)
    moving, source, target = Pages(device), pages(4, 8), pages(4, 8, seed=1)
    moving.move(device.side, source, np.array([1, 2]), target, np.array([0, 3]))
    assert torch.equal(target, pages(4, 8, seed=1)), "nothing has run yet"
    device.side.mark().wait()
    assert torch.equal(target[[0, 3]], source[[1, 2]])


def test_pages_of_two_sizes_are_refused() -> None:
    device = Paper()
    with pytest.raises(AssertionError, match="one size"):
        Pages(device).move(device.main, pages(2, 8), np.array([0]), pages(2, 16), np.array([0]))
