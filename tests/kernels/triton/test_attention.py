"""Paged attention in Triton, in the interpreter, against dense float64. Both kinds of kernels run in most cases: rows of
one query token are decoded, rows of more extended."""

import math

import pytest
import torch
from octavo_kernels.choice import pick
from octavo_kernels.ops import Geometry
from octavo_kernels.triton import shape, target

from tests.kernels.steps import Case, Row, dense, make_case, run_attention, step_of
from tests.kernels.triton.cases import BOUND, DTYPES, LENGTH, covering_cases
from tests.kernels.triton.cases import Case as Combination
from tests.kernels.triton.cases import check as error_of
from tests.pools import NAN_BYTE

ROWS = [Row(0, 1), Row(36, 1), Row(280, 1), Row(0, 5), Row(29, 9)]


@pytest.fixture(scope="module")
def ops():
    return pick("cpu", "triton")


@pytest.fixture(scope="module")
def invariant_ops():
    return pick("cpu", "triton", invariant=True)


def check(ops, rows, geometry, heads, *, dtype="float32", **options) -> Case:
    """The case, whose result is right."""
    case = make_case(ops, rows, geometry, heads, dtype=DTYPES[dtype])
    found = run_attention(ops, case, **options).double()
    torch.testing.assert_close(found, dense(case, rows, heads, **options), rtol=0, atol=4 * BOUND[dtype])
    return case


@pytest.mark.parametrize("case", covering_cases(), ids=lambda case: "-".join(map(str, vars(case).values())))
def test_every_two_choices_meet_in_a_case_that_is_right(case: Combination) -> None:
    assert error_of(case) <= BOUND[case.dtype]


@pytest.mark.parametrize("head_dim", [16, 32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256])
def test_AS01_heads_of_any_width_are_padded_to_powers_of_two(ops, head_dim: int) -> None:
    check(ops, ROWS[1:], Geometry(16, 1, 1, head_dim, "float32"), heads=2)


@pytest.mark.parametrize("head_dim", [72, 128, 256])
@pytest.mark.parametrize("rows", [[Row(36, 1)], [Row(20, 9)]])
def test_AS02_the_last_element_of_a_head_counts(ops, head_dim: int, rows: list[Row]) -> None:
    """One key has a spike there, and so has the query: its value is the result."""
    geometry = Geometry(16, 1, 1, head_dim, "float32")
    case = make_case(ops, rows, geometry, 1)
    page = case.step.table[case.step.row_slot[0].long(), 0].long()
    elements = case.pool.view(torch.float32)[page]
    elements[7 * head_dim + head_dim - 1] = 1e4
    case.q[..., -1] = 1e3
    found = run_attention(ops, case)
    torch.testing.assert_close(found, case.values[0][7].expand_as(found))


@pytest.mark.parametrize("group", [1, 2, 3, 5, 6, 7, 8, 12, 20])
def test_AS04_any_number_of_query_heads_shares_a_kv_head(ops, group: int) -> None:
    check(ops, ROWS, Geometry(16, 1, 1, 32, "float32"), heads=group)


@pytest.mark.parametrize("length", [2, 33])
@pytest.mark.parametrize("window", [1, 15, 16, 17, -1, 0, 1_000])
def test_AS05_windows_of_every_size_around_pages_and_lengths(ops, length: int, window: int) -> None:
    size = window if window > 0 else length + window  # 0 and below are meant from the length on
    rows = [Row(length - 1, 1), Row(0, length), Row(length // 2, length - length // 2)]
    check(ops, rows, Geometry(16, 1, 1, 32, "float32"), heads=3, window=size)
    check(ops, rows, Geometry(16, 1, 1, 32, "float32"), heads=3, window=length + 1)


@pytest.mark.parametrize(("heads", "kv_heads"), [(32, 32), (9, 3), (32, 8), (8, 2), (8, 1), (28, 4)])
def test_AS06_query_heads_find_their_kv_head(ops, heads: int, kv_heads: int) -> None:
    check(ops, [Row(20, 1), Row(9, 4)], Geometry(16, 1, kv_heads, 16, "float32"), heads)


@pytest.mark.parametrize("path", ["decode", "extend"])
def test_NU05_a_query_that_sees_no_key_gives_zeros(ops, path: str) -> None:
    """As row_length 0 makes it: position -1 and before."""
    query = {"decode": 1, "extend": 4}[path]
    case = make_case(ops, [Row(20, query), Row(20, 1)], Geometry(16, 1, 1, 32, "float32"), 2)
    truth = run_attention(ops, case)
    case.step.row_length[0] = 0
    found = run_attention(ops, case)
    assert (found[:query] == 0).all()
    assert torch.equal(found[query:], truth[query:])


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("path", ["decode", "extend"])
def test_NU06_what_lies_outside_the_window_weighs_nothing(ops, path: str, poison: float) -> None:
    """Whole splits of it, and the rest of the block in which the window begins."""
    row = {"decode": Row(620, 1), "extend": Row(610, 11)}[path]
    geometry, window = Geometry(16, 1, 1, 32, "float32"), 40
    case = make_case(ops, [row], geometry, 2)
    truth = run_attention(ops, case, window=window)
    torch.testing.assert_close(truth.double(), dense(case, [row], 2, window=window), rtol=0, atol=4e-6)
    unseen = row.computed - window + 1
    blocks = case.pool.view(torch.float32).view(-1, 2, 16, 32)
    pages = case.step.table[case.step.row_slot[0].long()]
    for position in range(unseen):
        blocks[pages[position // 16].long(), :, position % 16] = poison
    pages[: unseen // 16] = 2**31 - 1
    assert torch.equal(run_attention(ops, case, window=window), truth)


@pytest.mark.parametrize("window", range(1, 18))
def test_NU08_the_window_of_a_short_row_holds_its_own_token(ops, window: int) -> None:
    check(ops, [Row(1, 1), Row(0, 1), Row(0, 2), Row(15, 1)], Geometry(16, 1, 1, 16, "float32"), heads=1, window=window)


@pytest.mark.parametrize("cache", ["int8", "fp8"])
def test_a_row_with_a_nan_in_its_bytes_is_nan_and_no_other(ops, cache: str) -> None:
    rows = [Row(20, 1), Row(20, 1), Row(18, 3)]
    case = make_case(ops, rows, Geometry(16, 1, 1, 32, cache), 2)
    case.pool[case.step.table[case.step.row_slot[0].long(), 0].long()] = NAN_BYTE
    found = run_attention(ops, case)
    assert found[0].isnan().all()
    assert found[1:].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_without_fp8_takes_its_bits_apart(ops, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """To the same values, bit for bit."""
    case = make_case(ops, ROWS, Geometry(16, 1, 1, 64, "fp8"), 3, dtype=DTYPES[dtype])
    truth = run_attention(ops, case)
    monkeypatch.setattr(shape, "current", lambda: target.Target(knows_fp8=False))
    assert torch.equal(run_attention(ops, case), truth)


@pytest.mark.parametrize("is_long", [False, True])
def test_splits_grow_with_the_row(ops, monkeypatch: pytest.MonkeyPatch, is_long: bool) -> None:
    monkeypatch.setattr(shape, "SPLIT", 64)
    monkeypatch.setattr(shape, "MAX_SPLITS", 3)
    assert shape.splits_of(192 if not is_long else 700) == {"split": 64, "splits": 3, "doublings": 2 * is_long}
    lengths = (1, 64, 65, 191, 192, *((193, 383, 384, 385, 700) if is_long else ()))
    check(ops, [Row(length - 1, 1) for length in lengths], Geometry(8, 1, 1, 16, "float32"), heads=2)


def parts(case: Case, chunks: list[Row]) -> Case:
    """The same sequence, computed in these chunks that are rows of one step."""
    slot, geometry = int(case.step.row_slot[0]), case.step.geometry
    q = torch.cat([case.q[row.computed : row.computed + row.query] for row in chunks])
    step = step_of(chunks, [slot] * len(chunks), case.step.table, geometry)
    return Case(step, case.pool, case.array, case.keys, case.values, q)


@pytest.mark.parametrize(("dtype", "cache"), [("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "int8")])
@pytest.mark.parametrize("window", [0, 100])
def test_in_the_invariant_mode_chunks_do_not_change_a_bit(
    invariant_ops, monkeypatch: pytest.MonkeyPatch, dtype: str, cache: str, window: int
) -> None:
    """Chunks of one token are decoded, the others extended; splits are of two sizes here."""
    monkeypatch.setattr(shape, "SPLIT", 64)
    monkeypatch.setattr(shape, "MAX_SPLITS", 2)
    geometry = Geometry(16, 1, 1, 64, cache)
    case = make_case(invariant_ops, [Row(0, 200)], geometry, 3, dtype=DTYPES[dtype])
    truth = run_attention(invariant_ops, case, window=window)
    for chunks in (
        [Row(start, min(17, 200 - start)) for start in range(0, 200, 17)],
        [Row(start, 1) for start in (0, 1, 63, 64, 65, 127, 128, 129, 150, 191, 192, 199)],
    ):
        found = run_attention(invariant_ops, parts(case, chunks), window=window)
        assert torch.equal(found, torch.cat([truth[row.computed : row.computed + row.query] for row in chunks]))


def test_a_row_has_the_same_bits_in_any_batch(ops) -> None:
    rows = [Row(0, 1), Row(130, 1), Row(0, 20), Row(300, 1), Row(100, 30), Row(257, 1)]
    geometry = Geometry(16, 1, 1, 64, "bfloat16")
    case = make_case(ops, rows, geometry, 3, dtype=torch.bfloat16)
    truth, slots, first = run_attention(ops, case), case.step.row_slot.tolist(), case.step.row_start.tolist()
    for some in ([1], [4], [3, 2], [5, 4, 3, 1], [2, 0, 1]):
        q = [case.q[first[i] : first[i + 1]] for i in some]
        step = step_of([rows[i] for i in some], [slots[i] for i in some], case.step.table, geometry)
        found = run_attention(ops, Case(step, case.pool, case.array, [], [], torch.cat(q)))
        assert torch.equal(found, torch.cat([truth[first[i] : first[i + 1]] for i in some]))


def test_windows_are_named_by_the_length_of_a_row() -> None:
    assert Combination("float32", "own", 64, 16, 1, "length-1", 0.0, "decode").window_size == LENGTH - 1
