"""Attention through block tables, against dense float64."""

import pytest
import torch
from octavo_kernels.ops import Geometry, Ops
from torch import Tensor

from tests.kernels.implementations import build, every_ops
from tests.kernels.steps import GARBAGE, Case, Row, dense, make_case, place, run_attention, write_at
from tests.pools import NAN_BYTE

ERROR = {"float32": 4e-6, "float16": 2e-3, "bfloat16": 2e-2, "int8": 6e-2, "fp8": 2e-1}
"""Largest, by the coarser of what is computed in and what is kept in pages."""
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
MIXED = [Row(0, 1), Row(15, 1), Row(16, 1), Row(127, 1), Row(128, 1), Row(300, 1), Row(0, 40), Row(33, 7), Row(120, 17)]


def check(ops: Ops, rows: list[Row], geometry: Geometry, heads: int, *, layer: int = 0, dtype: str = "float32") -> Case:
    case = make_case(ops, rows, geometry, heads, layer=layer, dtype=DTYPES[dtype])
    torch.testing.assert_close(
        run_attention(ops, case, layer).double(),
        dense(case, rows, heads),
        rtol=0,
        atol=max(ERROR[dtype], ERROR[geometry.dtype]),
    )
    return case


@every_ops
@pytest.mark.parametrize("page_size", [1, 3, 4, 16, 32, 200])
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128])
def test_any_page_size_and_head_width_gives_the_dense_result(ops: Ops, page_size: int, head_dim: int) -> None:
    check(ops, MIXED, Geometry(page_size, 1, 2, head_dim, "float32"), heads=4)


@every_ops
@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (4, 2), (9, 3), (10, 2), (7, 1), (16, 2), (12, 1)])
def test_query_heads_share_kv_heads_in_order(ops: Ops, heads: int, kv_heads: int) -> None:
    check(ops, MIXED, Geometry(16, 1, kv_heads, 16, "float32"), heads)


@every_ops
def test_pages_may_be_kept_in_any_dtype_whatever_is_computed_in(ops: Ops) -> None:
    for dtype in ops.dtypes:
        for cache_dtype in ops.cache_dtypes:
            check(ops, MIXED, Geometry(16, 1, 3, 64, cache_dtype), heads=9, dtype=dtype)
            check(ops, MIXED, Geometry(5, 1, 3, 80, cache_dtype), heads=3, dtype=dtype)


@every_ops
@pytest.mark.parametrize("edge", [-1, 0, 1])
@pytest.mark.parametrize("pages", [1, 2, 8, 16])
def test_lengths_around_page_and_block_edges(ops: Ops, pages: int, edge: int) -> None:
    length = pages * 16 + edge
    check(ops, [Row(length - 1, 1), Row(0, length)], Geometry(16, 1, 2, 32, "float32"), heads=4)


@every_ops
def test_each_layer_reads_its_own_part_of_a_page(ops: Ops) -> None:
    geometry = Geometry(16, 5, 2, 32, "float32")
    case = check(ops, MIXED, geometry, heads=4, layer=3)
    written = (case.pool != NAN_BYTE).view(-1, 5, geometry.page_bytes // 5).any(-1).any(0)
    assert written.tolist() == [False, False, False, True, False]


@every_ops
def test_long_rows_beside_short_ones_all_come_out(ops: Ops) -> None:
    rows = [Row(100 + i, 1) for i in range(63)]
    rows.insert(20, Row(700, 300))
    check(ops, rows, Geometry(16, 1, 3, 64, "float32"), heads=9)


@every_ops
def test_padded_rows_are_left_alone(ops: Ops) -> None:
    geometry = Geometry(16, 1, 2, 16, "float32")
    case = make_case(ops, [Row(5, 1), Row(9, 1)], geometry, 4)
    case.step.row_slot[1] = -1
    out = run_attention(ops, case)
    assert torch.isfinite(out[0]).all()
    assert torch.isnan(out[1]).all()


@every_ops
def test_what_lies_past_a_row_never_matters(ops: Ops) -> None:
    """The null page, the rest of a row's last page and the tail of its table hold NaN and garbage in every case above;
    here other garbage gives the very same bits."""
    case = make_case(ops, MIXED, Geometry(16, 1, 2, 16, "float32"), 4)
    first = run_attention(ops, case)
    elements = case.pool.view(torch.float32)
    assert torch.isnan(elements[0]).all()
    elements.nan_to_num_(nan=3e38)
    case.step.table[case.step.table == GARBAGE] = -7
    assert torch.equal(run_attention(ops, case), first)


@every_ops
def test_a_row_of_nan_poisons_no_other_row(ops: Ops) -> None:
    case = make_case(ops, [Row(20, 1), Row(20, 1)], Geometry(16, 1, 2, 16, "float32"), 4)
    case.pool[case.step.table[case.step.row_slot[0].long(), :2].long()] = NAN_BYTE
    out = run_attention(ops, case)
    assert torch.isnan(out[0]).all()
    assert torch.isfinite(out[1]).all()


@every_ops
def test_NU02_scores_that_half_precision_does_not_have_are_weighed_in_float32(ops: Ops) -> None:
    """q · k = 640,000, or its negative: one position has all the weight, or two that are alike share it."""
    for dtype in ops.dtypes:
        case = make_case(ops, [Row(9, 1)], Geometry(16, 1, 2, 64, dtype), 2, dtype=DTYPES[dtype])
        keys = torch.full_like(case.keys[0], -100.0)
        keys[4], keys[6] = 100, 100
        index = place(case.step.table[int(case.step.row_slot[0])], len(keys), case.step.geometry)
        write_at(ops, keys, case.values[0], index, case.array, 0, case.step.geometry)
        case.q[:] = 100
        out = run_attention(ops, case).double()
        torch.testing.assert_close(out[0], case.values[0][[4, 6]].double().mean(0), rtol=0, atol=ERROR[dtype])


def test_attention_reads_no_more_than_one_block_of_pages_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No contiguous copy of a sequence's K or V beyond a block of 128 positions."""
    ops, geometry = build("reference"), Geometry(16, 1, 2, 16, "float32")
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
