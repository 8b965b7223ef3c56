"""Writing into pages, and moving them."""

import numpy as np
import pytest
import torch
from octavo_kernels.ops import Geometry, Ops

from tests.kernels.implementations import build, every_ops
from tests.kernels.steps import Row, empty_step, make_case, new_pool, qkv_of
from tests.pools import NAN_BYTE

GEOMETRY = Geometry(page_size=4, num_layers=2, num_kv_heads=3, head_dim=8, dtype="float32")
CACHE_DTYPES = [("float32", 4 * 8), ("bfloat16", 2 * 8), ("float16", 2 * 8), ("int8", 8 + 2), ("fp8", 8 + 2)]


@every_ops
def test_a_page_is_contiguous_over_all_layers_and_as_large_as_it_says(ops: Ops) -> None:
    pool = np.asarray(ops.new_pool(GEOMETRY, 5))
    assert pool.shape == (6, GEOMETRY.page_bytes)
    assert pool.dtype == np.uint8
    assert pool.flags.c_contiguous


@pytest.mark.parametrize(("dtype", "token_bytes"), CACHE_DTYPES)
def test_a_page_holds_k_and_v_of_each_token_and_their_scales(dtype: str, token_bytes: int) -> None:
    geometry = Geometry(page_size=4, num_layers=2, num_kv_heads=3, head_dim=8, dtype=dtype)
    assert geometry.page_bytes == 2 * 3 * 2 * 4 * token_bytes


def test_the_reference_keeps_k_then_v_token_by_token() -> None:
    case = make_case(build("reference"), [Row(0, 6)], GEOMETRY, 3, layer=1)
    table = case.step.table[case.step.row_slot[0].long()]
    blocks = case.pool.view(torch.float32).view(-1, 2, 3, 2, 4, 8)
    for position in range(6):
        page, offset = int(table[position // 4]), position % 4
        assert torch.equal(blocks[page, 1, :, 0, offset], case.keys[0][position])
        assert torch.equal(blocks[page, 1, :, 1, offset], case.values[0][position])
    assert int(torch.isfinite(blocks).sum()) == 6 * 2 * 3 * 8


@every_ops
@pytest.mark.parametrize("page_size", [4, 16])
def test_a_token_is_written_where_it_belongs_and_nowhere_else(ops: Ops, page_size: int) -> None:
    """Each element of its K and V, and no other; tokens without a place are written nowhere."""
    for dtype in ops.cache_dtypes:
        geometry = Geometry(page_size, num_layers=2, num_kv_heads=3, head_dim=16, dtype=dtype)
        array, memory = new_pool(ops, geometry, 2)
        step = empty_step(geometry)
        step.position, step.kv_index = torch.zeros(3, dtype=torch.int32), torch.tensor([-1, page_size + 1, -1])
        step.count(tokens=3, rows=0, head_rows=0, samples=0)
        k = torch.ones(3, 3, 16)
        ops.rope_and_write(qkv_of(k, k, k), torch.ones(1, 8), torch.zeros(1, 8), array, 1, step)
        changed = memory != NAN_BYTE
        assert not changed[0].any()
        assert not changed[2].any()
        assert not changed[1, : geometry.page_bytes // 2].any(), "layer 0"
        token_bytes = geometry.block_bytes // page_size
        assert int(changed[1].sum()) == 3 * token_bytes


@every_ops
def test_rope_turns_each_pair_of_halves_by_the_angle_of_its_position(ops: Ops) -> None:
    array, _ = new_pool(ops, GEOMETRY, 4)
    step = empty_step(GEOMETRY)
    step.position, step.kv_index = torch.tensor([2, 7], dtype=torch.int32), torch.tensor([6, 11])
    step.count(tokens=2, rows=0, head_rows=0, samples=0)
    angle = torch.arange(8).float()[:, None] * torch.tensor([1.0, 0.5, 0.25, 0.1])
    q, k = torch.randn(2, 6, 8), torch.randn(2, 3, 8)
    pairs = torch.complex(q[..., :4], q[..., 4:]).to(torch.complex128)
    turned = pairs * torch.polar(torch.ones(2, 1, 4).double(), angle[step.position][:, None].double())
    qkv = qkv_of(q, k, k)
    ops.rope_and_write(qkv, angle.cos(), angle.sin(), array, 1, step)
    found = qkv.double().view(2, -1, 8)[:, :6]
    torch.testing.assert_close(found, torch.cat((turned.real, turned.imag), -1), rtol=0, atol=1e-6)


@every_ops
def test_moves_carry_bytes_unchanged_and_read_before_they_write(ops: Ops) -> None:
    (pool, memory), (host, host_memory) = new_pool(ops, GEOMETRY, 6), new_pool(ops, GEOMETRY, 3)
    memory.random_()  # NaN with payloads, infinities and denormals among them
    before = memory.clone()
    ops.move_pages(pool, np.array([4, 2]), host, np.array([1, 3]))
    ops.move_pages(pool, np.array([1, 2]), pool, np.array([2, 1]))
    assert torch.equal(host_memory[[1, 3]], before[[4, 2]])
    assert torch.equal(memory[[2, 1]], before[[1, 2]])
    assert torch.equal(memory[[0, 3, 4, 5, 6]], before[[0, 3, 4, 5, 6]])
    ops.zero_pages(pool, np.array([5]))
    assert not memory[5].any()
    assert torch.equal(memory[6], before[6])
