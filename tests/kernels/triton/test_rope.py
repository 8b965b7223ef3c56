"""K and V on their way into pages of bytes."""

import pytest
import torch
from octavo_kernels.choice import pick
from octavo_kernels.ops import Geometry
from torch import Tensor

from tests.kernels.steps import new_pool, write_at
from tests.kernels.triton.cases import stored
from tests.pools import NAN_BYTE

DIM, PAGE = 24, 5
GEOMETRIES = {dtype: Geometry(PAGE, 2, 2, DIM, dtype) for dtype in ("int8", "fp8")}
KINDS = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}


def rows() -> Tensor:
    """[9, 2, DIM]: of any size, with zeros, exact halves, and what is nearly or truly no number."""
    x = torch.randn(9, 2, DIM, generator=torch.Generator().manual_seed(0))
    x *= torch.tensor([1, 1e-3, 1e3, 1e-9, 1e9, 1, 1, 1, 1])[:, None, None]
    x[5] = 0
    x[6, 0] = torch.arange(DIM) / 2 - 6  # halves are rounded to even
    x[6, 0, 0] = 127
    x[7, 0, 3], x[8, 1, 23] = torch.nan, -torch.inf
    return x


def written(dtype: str, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The page that has them, and its scales: K and V as float32 [KV, 2, PAGE, DIM] and [KV, 2, PAGE]."""
    geometry = GEOMETRIES[dtype]
    array, memory = new_pool(pick("cpu", "triton"), geometry, 2)
    write_at(pick("cpu", "triton"), k, v, PAGE + torch.arange(len(k)), array, 1, geometry)
    assert (memory[[0, 2]] == NAN_BYTE).all()
    assert (memory[1, : geometry.page_bytes // 2] == NAN_BYTE).all()
    blocks = memory[1, geometry.page_bytes // 2 :].view(2, geometry.block_bytes)
    elements = blocks[:, : 2 * PAGE * DIM].contiguous().view(KINDS[dtype]).view(2, 2, PAGE, DIM)
    scales = blocks[:, 2 * PAGE * DIM :].contiguous().view(torch.bfloat16).view(2, 2, PAGE)
    return elements.float(), scales.float()


@pytest.mark.parametrize("dtype", GEOMETRIES)
def test_bytes_times_scales_are_nearest_to_what_was_written(dtype: str) -> None:
    for x in rows()[:7].split(PAGE):
        elements, scales = written(dtype, x, -2 * x)
        found = (elements * scales[..., None])[:, :, : len(x)]
        for half, wanted in ((found[:, 0], x), (found[:, 1], -2 * x)):
            torch.testing.assert_close(half.transpose(0, 1), stored(wanted, dtype), rtol=1e-6, atol=0)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", GEOMETRIES)
def test_a_row_that_is_not_finite_has_a_scale_of_nan_and_leaves_others_alone(dtype: str) -> None:
    x = rows()[5:]
    _, scales = written(dtype, x, x)
    assert scales[:, :, :4].isnan().nonzero().tolist() == [[0, 0, 2], [0, 1, 2], [1, 0, 3], [1, 1, 3]]


def test_every_e4m3_is_written_as_itself() -> None:
    """448 in each row makes its scale 1."""
    values = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    values = values[values.isfinite()]
    values = torch.nn.functional.pad(values, (0, -len(values) % (DIM - 1)))
    x = torch.nn.functional.pad(values.view(-1, 1, DIM - 1), (0, 1), value=448.0).expand(-1, 2, -1)
    for part in x.split(PAGE):
        elements, scales = written("fp8", part, part)
        assert (scales[:, :, : len(part)] == 1).all()
        assert torch.equal(elements[0, 0, : len(part)], part[:, 0])
