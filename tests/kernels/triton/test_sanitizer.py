"""The sanitizer finds what is wrong with kernels, and nothing in those of attention."""

import pytest
import torch
import triton
import triton.language as tl
from octavo_kernels.choice import pick
from octavo_kernels.ops import Geometry
from octavo_kernels.triton.source import attention as source
from octavo_kernels.triton.source import extend

from tests.kernels.steps import Case, Row, dense, make_case, run_attention
from tests.kernels.triton.cases import BOUND, DTYPES
from tests.kernels.triton.sanitizer import ViolationError, sanitized


@triton.jit
def copy(x, out, n, SHIFT: tl.constexpr, IS_MASKED: tl.constexpr):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    mask = (i < n) if IS_MASKED else (i < n + 4)
    tl.store(out + i, tl.load(x + i + SHIFT, mask, other=0.0), mask)


@triton.jit
def total_without_other(x, out, n):
    i = tl.arange(0, 4)
    tl.store(out, tl.sum(tl.load(x + i, i < n), 0))


@triton.jit
def all_to_one(x, out):
    tl.store(out, tl.load(x + tl.program_id(0)))


@triton.jit
def lanes_to_one(x, out):
    tl.store(out + tl.arange(0, 4) * 0, tl.load(x + tl.arange(0, 4)))


@triton.jit
def from_neighbour(x):
    i = tl.program_id(0)
    tl.store(x + i, tl.load(x + i + 1) + 1.0)


@triton.jit
def count(out):
    tl.atomic_add(out, 1.0)


@triton.jit
def page_of_anything(table, position, lowest, highest, SHAPE: tl.constexpr):
    return tl.load(table + position // SHAPE.page_size).to(tl.int64)


@triton.jit
def elements_of_anything(pointers, is_there, is_dim, SHAPE: tl.constexpr, IS_MASKED: tl.constexpr):
    return tl.load(pointers)


@triton.jit
def first_row(block, row_start, num_rows, BLOCK_Q: tl.constexpr):
    return 0


@pytest.mark.parametrize(("shift", "is_masked"), [(0, False), (-1, True), (1, True)])
def test_an_address_outside_the_arguments_is_found(shift: int, is_masked: bool) -> None:
    x, out = torch.randn(8), torch.zeros(8)
    with sanitized():
        copy[(2,)](x, out, 8, 0, True)
        assert torch.equal(out, x)
        with pytest.raises(ViolationError, match="outside"):
            copy[(3,)](x, out, 8, shift, is_masked)


def test_masked_lanes_read_poison_unless_the_kernel_says_otherwise() -> None:
    x, out = torch.ones(4), torch.zeros(1)
    with sanitized():
        total_without_other[(1,)](x, out, 3)
    assert out.item() > 1e30


@pytest.mark.parametrize("kernel", [all_to_one, lanes_to_one])
def test_two_writers_of_one_place_are_found(kernel) -> None:
    with sanitized(), pytest.raises(ViolationError, match="one place"):
        kernel[(3,)](torch.randn(4), torch.zeros(1))


@pytest.mark.parametrize("seed", range(4))
def test_a_program_that_reads_what_another_writes_is_found_in_any_order(seed: int) -> None:
    with sanitized(seed), pytest.raises(ViolationError, match="another one"):
        from_neighbour[(4,)](torch.zeros(5))


def test_atomics_may_meet() -> None:
    out = torch.zeros(1)
    with sanitized():
        count[(5,)](out)
    assert out.item() == 5


def test_outside_of_it_nothing_is_watched() -> None:
    out = torch.zeros(1)
    with sanitized():
        pass
    all_to_one[(3,)](torch.ones(4), out)
    assert out.item() == 1


def tight(case: Case) -> Case:
    """Its block table has no slot but those of its rows, and no room behind the longest of them."""
    step, pages = case.step, -(-int(case.step.row_length.max()) // case.step.geometry.page_size)
    step.table = step.table[step.row_slot.long(), :pages].contiguous()
    step.row_slot = torch.arange(len(step.row_slot), dtype=torch.int32)
    return case


@pytest.mark.parametrize(
    ("module", "name", "bug"),
    [
        (source, "page_of", page_of_anything),
        (source, "elements", elements_of_anything),
        (extend, "row_of_block", first_row),
    ],
)
def test_bugs_of_attention_are_found(monkeypatch: pytest.MonkeyPatch, module, name: str, bug) -> None:
    ops, rows = pick("cpu", "triton"), [Row(36, 1), Row(3, 9), Row(20, 4)]
    case = tight(make_case(ops, rows, Geometry(16, 1, 1, 24, "float32"), 2))
    monkeypatch.setattr(module, name, bug)
    with sanitized():
        try:
            result = run_attention(ops, case)
        except ViolationError:
            return
    assert not torch.allclose(result.double(), dense(case, rows, 2), atol=1e-5), "neither found nor wrong"


@pytest.mark.parametrize("is_invariant", [False, True])
@pytest.mark.parametrize(
    ("dtype", "cache", "head_dim", "page_size", "window"),
    [("float32", "float32", 80, 3, 0), ("bfloat16", "int8", 64, 16, 33), ("float16", "fp8", 24, 32, 1)],
)
def test_attention_and_writing_break_no_rule(
    is_invariant: bool, dtype: str, cache: str, head_dim: int, page_size: int, window: int
) -> None:
    """Padded rows among them."""
    rows = [Row(0, 1), Row(280, 1), Row(0, 40), Row(90, 1), Row(33, 7)]
    ops, geometry = pick("cpu", "triton", invariant=is_invariant), Geometry(page_size, 2, 2, head_dim, cache)
    with sanitized():
        case = make_case(ops, rows, geometry, 6, layer=1, dtype=DTYPES[dtype])
        tight(case)
        truth = run_attention(ops, case, 1, window=window)
        case.step.row_slot[[2, 3]] = -1
        found = run_attention(ops, case, 1, window=window)
    is_padded = torch.tensor([False] * 2 + [True] * 41 + [False] * 7)
    assert found[is_padded].isnan().all()
    assert torch.equal(found[~is_padded], truth[~is_padded])
    if cache == dtype:
        error = (truth.double() - dense(case, rows, 6, window=window)).abs().max()
        assert error <= 4 * BOUND[dtype]
