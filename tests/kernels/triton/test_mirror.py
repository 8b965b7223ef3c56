"""Arrays of main memory and their copies on a device that is late."""

import numpy as np
import pytest
from octavo_kernels.triton.mirror import TURNS, Mirror
from octavo_kernels.triton.paper import Paper


def test_what_was_written_is_on_the_device_after_a_flush_and_nothing_else() -> None:
    mirror = Mirror(Paper())
    table, seeds, shares = np.arange(12, dtype=np.int32).reshape(3, 4), np.zeros(5, np.int64), np.zeros(7, np.float32)
    copies = [mirror.share(array) for array in (table, seeds, shares)]
    table[1, 2:4], seeds[3], shares[2:4], shares[6] = 77, -(2**40), 1.5, 9
    mirror.changed(table, 6, 2)
    mirror.changed(seeds, 3, 1)
    mirror.changed(shares, 2, 2)
    assert copies[0][1].tolist() == [4, 5, 6, 7]
    mirror.flush()
    assert copies[0][1].tolist() == [4, 5, 77, 77]
    assert copies[1].tolist() == [0, 0, 0, -(2**40), 0]
    assert copies[2].tolist() == [0, 0, 1.5, 1.5, 0, 0, 0]  # nobody said that the last one changed


def test_flushes_that_overtake_a_late_device_overwrite_no_patch_on_its_way() -> None:
    device = Paper(is_main_late=True)
    mirror = Mirror(device)
    array = np.zeros(64, np.int32)
    copy = mirror.share(array)
    for i in range(4 * TURNS):
        array[i] = 100 + i
        mirror.changed(array, i, 1)
        mirror.flush()
    device.main.mark().wait()
    assert copy[: 4 * TURNS].tolist() == [100 + i for i in range(4 * TURNS)]


def test_rows_that_were_copied_are_copied_on_the_device_which_may_know_more() -> None:
    mirror = Mirror(Paper())
    history = np.zeros((3, 4), np.int32)
    copy = mirror.share(history)
    copy[0, 2] = 55  # as a kernel would
    history[0, 0] = 11
    mirror.changed(history, 0, 1)
    mirror.copied(history, np.array([0]), np.array([2]))
    assert copy[2].tolist() == [11, 0, 55, 0]


def test_what_is_fetched_is_what_the_device_has_once_it_is_waited_for() -> None:
    device = Paper(is_main_late=True)
    mirror = Mirror(device)
    array = np.zeros(3, np.int32)
    copy = mirror.share(array)
    device.main.do(lambda: copy.fill_(4))
    fetched = mirror.fetch(array, 2)
    assert not fetched.is_there()
    assert fetched.wait().tolist() == [4, 4]
    assert fetched.is_there()


@pytest.mark.parametrize("array", [np.zeros(4, np.int8), np.zeros((4, 4), np.int32)[:, :2]])
def test_arrays_without_whole_words_in_one_piece_are_refused(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match="whole words"):
        Mirror(Paper()).share(array)
