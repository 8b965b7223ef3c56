"""Attention through block tables, against dense float64."""

import pytest
import torch
from octavo_kernels.ops import Geometry, pick
from torch import Tensor

from tests.kernels.steps import GARBAGE, Case, Row, dense, make_case, run_attention

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
MIXED = [Row(0, 1), Row(15, 1), Row(16, 1), Row(127, 1), Row(128, 1), Row(300, 1), Row(0, 40), Row(33, 7), Row(120, 17)]

both_modes = pytest.mark.parametrize("invariant", [False, True])


def check(rows: list[Row], geometry: Geometry, heads: int, invariant: bool = False, layer: int = 0) -> Case:
    ops = pick("cpu", "reference", invariant=invariant)
    case = make_case(ops, rows, geometry, heads, layer=layer)
    torch.testing.assert_close(
        run_attention(ops, case, layer).double(),
        dense(case, rows, heads),
        rtol=0,
        atol=TOLERANCE[geometry.dtype],
    )
    return case


@both_modes
@pytest.mark.parametrize("page_size", [1, 3, 4, 16, 32, 200])
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128])
def test_any_page_size_and_head_width_gives_the_dense_result(page_size: int, head_dim: int, invariant: bool) -> None:
    check(MIXED, Geometry(page_size, 1, 2, head_dim, torch.float32), heads=4, invariant=invariant)


@both_modes
@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (9, 3), (7, 1), (16, 2)])
def test_query_heads_share_kv_heads_in_order(heads: int, kv_heads: int, invariant: bool) -> None:
    check(MIXED, Geometry(16, 1, kv_heads, 16, torch.float32), heads, invariant)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_half_precision_pages_are_read_and_mixed_in_float32(dtype: torch.dtype) -> None:
    check(MIXED, Geometry(16, 1, 3, 64, dtype), heads=9)


@pytest.mark.parametrize("edge", [-1, 0, 1])
@pytest.mark.parametrize("pages", [1, 2, 8, 16])
def test_lengths_around_page_and_block_edges(pages: int, edge: int) -> None:
    length = pages * 16 + edge
    check([Row(length - 1, 1), Row(0, length)], Geometry(16, 1, 2, 32, torch.float32), heads=4)


def test_each_layer_reads_its_own_part_of_a_page() -> None:
    geometry = Geometry(16, 5, 2, 32, torch.float32)
    case = check(MIXED, geometry, heads=4, layer=3)
    written = torch.isfinite(case.pool).flatten(2).any(-1).any(0)
    assert written.tolist() == [False, False, False, True, False]


def test_long_rows_beside_short_ones_all_come_out() -> None:
    rows = [Row(100 + i, 1) for i in range(63)]
    rows.insert(20, Row(700, 300))
    check(rows, Geometry(16, 1, 3, 64, torch.float32), heads=9)


@both_modes
def test_padded_rows_are_left_alone(invariant: bool) -> None:
    ops = pick("cpu", "reference", invariant=invariant)
    geometry = Geometry(16, 1, 2, 16, torch.float32)
    case = make_case(ops, [Row(5, 1), Row(9, 1)], geometry, 4)
    case.step.row_slot[1] = -1
    out = run_attention(ops, case)
    assert torch.isfinite(out[0]).all()
    assert torch.isnan(out[1]).all()


def test_what_lies_past_a_row_never_matters() -> None:
    """The null page, the rest of a row's last page and the tail of its table hold NaN and garbage in every case above;
    here other garbage gives the very same bits."""
    ops, geometry = pick("cpu", "reference"), Geometry(16, 1, 2, 16, torch.float32)
    case = make_case(ops, MIXED, geometry, 4)
    first = run_attention(ops, case)
    assert torch.isnan(case.pool[0]).all()
    case.pool.nan_to_num_(nan=3e38)
    case.step.table[case.step.table == GARBAGE] = -7
    assert torch.equal(run_attention(ops, case), first)


def test_a_row_of_nan_poisons_no_other_row() -> None:
    ops, geometry = pick("cpu", "reference"), Geometry(16, 1, 2, 16, torch.float32)
    case = make_case(ops, [Row(20, 1), Row(20, 1)], geometry, 4)
    case.pool[case.step.table[case.step.row_slot[0].long(), :2].long()] = torch.nan
    out = run_attention(ops, case)
    assert torch.isnan(out[0]).all()
    assert torch.isfinite(out[1]).all()


def test_attention_reads_no_more_than_one_block_of_pages_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No contiguous copy of a sequence's K or V beyond a block of 128 positions."""
    ops, geometry = pick("cpu", "reference"), Geometry(16, 1, 2, 16, torch.float32)
    case = make_case(ops, [Row(1000, 1), Row(900, 50)], geometry, 4)
    gathered: list[int] = []
    select = torch.index_select

    def recording(source: Tensor, dim: int, index: Tensor, *, out: Tensor) -> Tensor:
        gathered.append(index.numel())
        return select(source, dim, index, out=out)

    monkeypatch.setattr(torch, "index_select", recording)
    run_attention(ops, case)
    pages_of_block = 128 // geometry.page_size
    assert gathered
    assert max(gathered) == geometry.num_kv_heads * pages_of_block
