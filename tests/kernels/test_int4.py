"""4 bits as AWQ and GPTQ store them, against values written out bit by bit."""

import numpy as np
import pytest
from octavo_kernels.int4 import Int4, from_awq, from_gptq

AWQ_SHIFTS = (0, 16, 4, 20, 8, 24, 12, 28)
"""Where each of eight neighbouring outputs lies in a word of AWQ."""
GPTQ_SHIFTS = tuple(range(0, 32, 4))


def words(values: np.ndarray, shifts: tuple[int, ...]) -> np.ndarray:
    """int32 [n, m / 8] of [n, m], value by value."""
    packed = np.zeros((values.shape[0], values.shape[1] // 8), np.uint32)
    for row, column in np.ndindex(*values.shape):
        packed[row, column // 8] |= np.uint32(int(values[row, column]) << shifts[column % 8])
    return packed.view(np.int32)


def dequantised(q: np.ndarray, zero: np.ndarray, scale: np.ndarray, group_of: np.ndarray) -> np.ndarray:
    """[outputs, inputs], element by element."""
    inputs, outputs = q.shape
    return np.array(
        [
            [(float(q[i, o]) - float(zero[group_of[i], o])) * float(scale[group_of[i], o]) for i in range(inputs)]
            for o in range(outputs)
        ],
        np.float32,
    )


def parts(inputs: int, outputs: int, groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q [inputs, outputs], zero points and scales [groups, outputs]."""
    rng = np.random.default_rng(inputs + groups)
    scale = rng.uniform(0.01, 0.1, (groups, outputs)).astype(np.float16)
    return rng.integers(0, 16, (inputs, outputs)), rng.integers(0, 16, (groups, outputs)), scale


def gptq(q: np.ndarray, zero: np.ndarray, scale: np.ndarray, g_idx: np.ndarray | None, *, is_v2: bool = False) -> Int4:
    stored = zero if is_v2 else (zero - 1) % 16
    return from_gptq(words(q.T, GPTQ_SHIFTS).T, words(stored, GPTQ_SHIFTS), scale, g_idx, is_v2=is_v2)


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("zero_point", [0, 15])
def test_WL04_zero_points_at_either_end_are_exact_in_every_place_of_a_word(zero_point: int, place: int) -> None:
    q, zero, scale = parts(64, 16, 2)
    zero[:, place] = zero[:, 8 + place] = zero_point
    in_order = np.repeat([0, 1], 32)
    truth = dequantised(q, zero, scale, in_order)
    read = from_awq(words(q, AWQ_SHIFTS), words(zero, AWQ_SHIFTS), scale)
    assert np.array_equal(read.floats(), truth)
    assert read.zero[:, place].tolist() == [zero_point] * 2
    for is_v2 in (False, True):
        assert np.array_equal(gptq(q, zero, scale, in_order, is_v2=is_v2).floats(), truth)


@pytest.mark.parametrize("desc_act", [True, False])
def test_WL05_inputs_in_the_order_of_their_weight_find_the_group_that_g_idx_names(desc_act: bool) -> None:
    q, zero, scale = parts(96, 16, 3)
    g_idx = np.repeat(np.arange(3, dtype=np.int32), 32)
    if desc_act:
        g_idx = np.random.default_rng(1).permutation(g_idx)
    truth = dequantised(q, zero, scale, g_idx)
    assert np.array_equal(gptq(q, zero, scale, g_idx).floats(), truth)
    assert np.array_equal(gptq(q, zero, scale, None).floats(), truth) == (not desc_act)


@pytest.mark.parametrize(("inputs", "groups"), [(96, 1), (96, 3), (128, 2), (128, 1), (256, 2)])
def test_WL06_groups_of_any_size_and_one_for_all_inputs_are_exact(inputs: int, groups: int) -> None:
    """One group for all is what group_size -1 means."""
    q, zero, scale = parts(inputs, 8, groups)
    truth = dequantised(q, zero, scale, np.repeat(np.arange(groups), inputs // groups))
    assert truth.any()
    assert np.array_equal(gptq(q, zero, scale, None).floats(), truth)
    assert np.array_equal(from_awq(words(q, AWQ_SHIFTS), words(zero, AWQ_SHIFTS), scale).floats(), truth)


def test_WL06_inputs_that_are_no_whole_number_of_groups_are_refused() -> None:
    inputs, size = 104, 40
    q, zero, scale = parts(inputs, 8, 3)
    with pytest.raises(ValueError, match="groups of one size"):
        gptq(q, zero, scale, None)
    with pytest.raises(ValueError, match="groups of one size"):
        gptq(q, zero, scale, (np.arange(inputs) // size).astype(np.int32))
    with pytest.raises(ValueError, match="groups of one size"):
        from_awq(words(q, AWQ_SHIFTS), words(zero, AWQ_SHIFTS), scale)
