"""Writing into pages, and moving them."""

import math

import torch
from octavo_kernels.ops import Geometry, pick

from tests.kernels.steps import CPU, Row, empty_step, make_case

OPS = pick("cpu", "reference")
GEOMETRY = Geometry(page_size=4, num_layers=2, num_kv_heads=3, head_dim=8, dtype=torch.float32)


def test_a_page_is_contiguous_over_all_layers_and_as_large_as_it_says() -> None:
    pool = GEOMETRY.new_pool(5, CPU)
    assert pool.shape[0] == 6
    assert pool[3].is_contiguous()
    assert pool[3].nbytes == GEOMETRY.page_bytes == 2 * 4 * 2 * 3 * 8 * 4


def test_writing_touches_the_positions_named_and_no_other() -> None:
    case = make_case(OPS, [Row(0, 6)], GEOMETRY, 3, layer=1)
    table = case.step.table[case.step.row_slot[0].long()]
    pool = case.pool.view(-1, 2, 3, 2, 4, 8)
    for position in range(6):
        page, offset = int(table[position // 4]), position % 4
        assert torch.equal(pool[page, 1, :, 0, offset], case.keys[0][position])
        assert torch.equal(pool[page, 1, :, 1, offset], case.values[0][position])
    assert int(torch.isfinite(case.pool).sum()) == 6 * 2 * 3 * 8


def test_padded_tokens_are_written_nowhere() -> None:
    step, pool = empty_step(GEOMETRY), GEOMETRY.new_pool(2, CPU).fill_(math.nan)
    step.position, step.kv_index = torch.tensor([0, 0, 0]), torch.tensor([5, -1, -1])
    k = torch.ones(3, 3, 8)
    OPS.rope_and_write(k.clone(), k, k, torch.ones(1, 4), torch.zeros(1, 4), pool, 0, step)
    assert int(torch.isfinite(pool).sum()) == 2 * 3 * 8
    assert torch.isnan(pool[0]).all()


def test_rope_turns_each_pair_of_halves_by_the_angle_of_its_position() -> None:
    step, pool = empty_step(GEOMETRY), GEOMETRY.new_pool(4, CPU)
    step.position, step.kv_index = torch.tensor([2, 7]), torch.tensor([6, 11])
    angle = torch.arange(8).float()[:, None] * torch.tensor([1.0, 0.5, 0.25, 0.1])
    q, k = torch.randn(2, 6, 8), torch.randn(2, 3, 8)
    pairs = torch.complex(q[..., :4], q[..., 4:]).to(torch.complex128)
    turned = pairs * torch.polar(torch.ones(2, 1, 4).double(), angle[step.position][:, None].double())
    OPS.rope_and_write(q, k, k, angle.cos(), angle.sin(), pool, 1, step)
    torch.testing.assert_close(q.double(), torch.cat((turned.real, turned.imag), -1), rtol=0, atol=1e-6)


def test_moves_carry_bytes_unchanged_and_read_before_they_write() -> None:
    pool, host = GEOMETRY.new_pool(6, CPU), GEOMETRY.new_pool(3, CPU)
    pool.view(torch.int32).random_()  # NaN with payloads, infinities and denormals among them
    before = pool.clone().view(torch.int32)
    OPS.move_pages(pool, torch.tensor([4, 2]), host, torch.tensor([1, 3]))
    OPS.move_pages(pool, torch.tensor([1, 2]), pool, torch.tensor([2, 1]))
    after = pool.view(torch.int32)
    assert torch.equal(host.view(torch.int32)[[1, 3]], before[[4, 2]])
    assert torch.equal(after[[2, 1]], before[[1, 2]])
    assert torch.equal(after[[0, 3, 4, 5, 6]], before[[0, 3, 4, 5, 6]])
    OPS.zero_pages(pool, torch.tensor([5]))
    assert not pool[5].any()
    assert torch.equal(after[6], before[6])
