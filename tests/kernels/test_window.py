"""Sliding windows and capped scores, against dense float64: in one piece, in chunks, token by token."""

from dataclasses import replace

import pytest
import torch
from octavo_kernels.ops import Geometry, Ops
from torch import Tensor

from tests.kernels.implementations import compiled_ops, invariant_ops
from tests.kernels.steps import Case, Row, dense, make_case, place, run_attention, step_of, write_at
from tests.kernels.test_attention import DTYPES, ERROR, MIXED
from tests.pools import NAN_BYTE

PAGE, LENGTH, HEADS = 16, 77, 4
WINDOWS = [1, PAGE - 1, PAGE, PAGE + 1, LENGTH - 1, LENGTH, LENGTH + 1, 10 * LENGTH]
WAYS = {"in one piece": LENGTH, "in chunks of 5": 5, "token by token": 1}
CAP = 1.5
"""So low that it bends most scores of these cases."""


def sequence(ops: Ops, length: int, *, page_size: int = PAGE, dtype: str = "float32", cache_dtype: str = "") -> Case:
    geometry = Geometry(page_size, 1, 2, 32, cache_dtype or dtype)
    return make_case(ops, [Row(0, length)], geometry, HEADS, dtype=DTYPES[dtype])


def in_chunks(case: Case, size: int, whole: Row | None = None) -> Case:
    """The same row (None: a sequence from its beginning), cut into rows of one step that read the same pages."""
    computed, query = (whole.computed, whole.query) if whole else (0, len(case.q))
    rows = [Row(computed + start, min(size, query - start)) for start in range(0, query, size)]
    slots = [int(case.step.row_slot[0])] * len(rows)
    return replace(case, step=step_of(rows, slots, case.step.table, case.step.geometry))


def close(out: Tensor, case: Case, *, window: int, softcap: float = 0.0, error: float = ERROR["float32"]) -> None:
    truth = dense(case, [Row(0, len(case.q))], HEADS, window=window, softcap=softcap)
    torch.testing.assert_close(out.double(), truth, rtol=0, atol=error)


@compiled_ops
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("page_size", [PAGE, 5])
def test_AS05_SW04_a_window_of_any_size_is_that_of_the_dense_result_however_the_row_is_cut(
    ops: Ops, page_size: int, window: int
) -> None:
    case = sequence(ops, LENGTH, page_size=page_size)
    for size in WAYS.values():
        close(run_attention(ops, in_chunks(case, size), window=window), case, window=window)


@compiled_ops
def test_AS05_a_window_in_any_dtype_of_activations_and_of_pages(ops: Ops) -> None:
    for dtype in ops.dtypes:
        for cache_dtype in ops.cache_dtypes:
            case = sequence(ops, LENGTH, dtype=dtype, cache_dtype=cache_dtype)
            for size in WAYS.values():
                out = run_attention(ops, in_chunks(case, size), window=PAGE + 1)
                close(out, case, window=PAGE + 1, error=max(ERROR[dtype], ERROR[cache_dtype]))


@invariant_ops
@pytest.mark.parametrize("window", [1, 64, 65, 513, 600, 1300])
def test_with_a_window_a_token_has_the_same_bits_in_any_chunk(ops: Ops, window: int) -> None:
    """The last of 1,300 positions, which are several spans and many blocks of kernels that cut a context up."""
    tail = Row(1200, 100)
    for cache_dtype in ops.cache_dtypes:
        case = make_case(ops, [tail], Geometry(PAGE, 1, 2, 32, cache_dtype), HEADS)
        whole = run_attention(ops, case, window=window, softcap=CAP)
        truth = dense(case, [tail], HEADS, window=window, softcap=CAP)
        torch.testing.assert_close(whole.double(), truth, rtol=0, atol=max(ERROR["float32"], ERROR[cache_dtype]))
        for size in (1, 33):
            part = in_chunks(case, size, tail)
            assert torch.equal(run_attention(ops, part, window=window, softcap=CAP), whole), (cache_dtype, size)


@compiled_ops
@pytest.mark.parametrize("window", [1, 7, 33, 128, 129, 1000])
def test_rows_of_all_lengths_see_their_own_windows(ops: Ops, window: int) -> None:
    case = make_case(ops, MIXED, Geometry(PAGE, 1, 2, 80, "float32"), HEADS)
    out = run_attention(ops, case, window=window)
    torch.testing.assert_close(out.double(), dense(case, MIXED, HEADS, window=window), rtol=0, atol=ERROR["float32"])


@compiled_ops
@pytest.mark.parametrize("softcap", [0.1, 1.5, 30.0, 1e4])
def test_capped_scores_are_those_of_the_dense_result(ops: Ops, softcap: float) -> None:
    for cache_dtype in ops.cache_dtypes:
        case = make_case(ops, MIXED, Geometry(PAGE, 1, 2, 64, cache_dtype), HEADS)
        out, truth = run_attention(ops, case, softcap=softcap), dense(case, MIXED, HEADS, softcap=softcap)
        torch.testing.assert_close(out.double(), truth, rtol=0, atol=max(ERROR["float32"], ERROR[cache_dtype]))


@compiled_ops
@pytest.mark.parametrize("softcap", [5.0, 50.0])
def test_scores_far_beyond_the_cap_stay_below_it(ops: Ops, softcap: float) -> None:
    case = make_case(ops, MIXED, Geometry(PAGE, 1, 2, 64, "float32"), HEADS)
    case.q *= 1000
    out, truth = run_attention(ops, case, softcap=softcap), dense(case, MIXED, HEADS, softcap=softcap)
    torch.testing.assert_close(out.double(), truth, rtol=0, atol=2e-5)


@compiled_ops
@pytest.mark.parametrize("length", [7, 8, 9, 10])
def test_SW01_at_below_and_above_the_window_the_result_is_that_of_the_full_mask(ops: Ops, length: int) -> None:
    """The recipe: window 8, a prompt of 6, four more tokens one by one."""
    case = sequence(ops, length)
    rows = [Row(0, 6), *(Row(i, 1) for i in range(6, length))]
    step = step_of(rows, [int(case.step.row_slot[0])] * len(rows), case.step.table, case.step.geometry)
    close(run_attention(ops, replace(case, step=step), window=8), case, window=8)


@compiled_ops
def test_SW02_a_prompt_longer_than_the_window_is_causal_in_one_chunk_and_in_chunks_of_5(ops: Ops) -> None:
    """The recipe: window 8, a prompt of 20. What comes later, changed, changes nothing before it."""
    case = sequence(ops, 20)
    for size in (20, 5):
        close(run_attention(ops, in_chunks(case, size), window=8), case, window=8)
    head = replace(case, step=step_of([Row(0, 12)], [int(case.step.row_slot[0])], case.step.table, case.step.geometry))
    close(run_attention(ops, replace(head, q=case.q[:12]), window=8), sequence_head(case, 12), window=8)


def sequence_head(case: Case, length: int) -> Case:
    return replace(case, q=case.q[:length], keys=[case.keys[0][:length]], values=[case.values[0][:length]])


@compiled_ops
def test_NU05_blocks_that_a_row_sees_nothing_of_weigh_nothing_and_make_no_nan(ops: Ops) -> None:
    """Rows of one piece, of which the first see blocks that the last do not, beside a padded row."""
    geometry = Geometry(PAGE, 1, 2, 32, "float32")
    rows = [Row(500, 300), Row(3, 1)]
    case = make_case(ops, rows, geometry, HEADS)
    truth = dense(case, rows, HEADS, window=3)
    case.step.row_slot[1] = -1
    out = run_attention(ops, case, window=3)
    torch.testing.assert_close(out[:-1].double(), truth[:-1], rtol=0, atol=ERROR["float32"])
    assert torch.isnan(out[-1]).all()


@compiled_ops
@pytest.mark.parametrize("window", [1, 9, 16, 17, 40])
def test_NU06_what_lies_before_every_window_may_be_anything(ops: Ops, window: int) -> None:
    """NaN in whole pages: keys, values and scales."""
    for cache_dtype in ops.cache_dtypes:
        case = make_case(ops, [Row(70, 1), Row(60, 30)], Geometry(PAGE, 1, 2, 32, cache_dtype), HEADS)
        good = run_attention(ops, case, window=window)
        assert torch.isfinite(good).all()
        for row, computed in enumerate((70, 60)):
            hidden = max(0, computed + 1 - window)
            pages = case.step.table[case.step.row_slot[row].long(), : hidden // PAGE].long()
            case.pool[pages] = NAN_BYTE
        assert torch.equal(run_attention(ops, case, window=window), good)


@compiled_ops
@pytest.mark.parametrize("poison", [float("nan"), 1e30])
@pytest.mark.parametrize("page_size", [16, 5])
def test_NU06_poison_beside_what_is_seen_changes_nothing(ops: Ops, page_size: int, poison: float) -> None:
    """In the very page that a window begins in, at odd and even offsets."""
    for offset in (0, 1, 7, 15, 16, 18, 31, 32):
        case = sequence(ops, 40 + offset, page_size=page_size)
        case.q = case.q[-1:]
        case.step = step_of([Row(39 + offset, 1)], [int(case.step.row_slot[0])], case.step.table, case.step.geometry)
        good = run_attention(ops, case, window=40)
        write_poison(ops, case, offset, poison)
        assert torch.equal(run_attention(ops, case, window=40), good)


def write_poison(ops: Ops, case: Case, positions: int, poison: float) -> None:
    """K and V of the first positions."""
    table, geometry = case.step.table[int(case.step.row_slot[0])], case.step.geometry
    bad = torch.full((positions, geometry.num_kv_heads, geometry.head_dim), poison)
    if positions:
        write_at(ops, bad, bad, place(table, positions, geometry), case.array, 0, geometry)


@compiled_ops
@pytest.mark.parametrize("window", range(1, PAGE + 2))
def test_NU08_a_window_includes_the_token_itself_whatever_its_size(ops: Ops, window: int) -> None:
    """The recipe: one query, two positions; a window of 1 gives the token's own value."""
    case = sequence(ops, 2)
    close(run_attention(ops, in_chunks(case, 1), window=window), case, window=window)
    if window == 1:
        values = case.values[0].repeat_interleave(2, dim=1)
        torch.testing.assert_close(run_attention(ops, in_chunks(case, 1), window=1), values, rtol=0, atol=1e-6)
