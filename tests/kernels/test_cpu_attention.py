"""Paged attention of the C kernels, in every variant of this processor, against dense float64."""

import numpy as np
import pytest
from octavo_kernels import cpu
from octavo_kernels.cpu.library import variants
from octavo_kernels.ops import Geometry, Ops

from tests.kernels.cached import Row, dense, make_case, run

TOLERANCE = {"float32": 3e-6, "float16": 3e-6, "bfloat16": 1e-2, "int8": 1e-2}
BYTES = 2e-2
"""Where weights of int8 pages are bytes; on average still a tenth of that."""
MIXED = [Row(0, 1), Row(15, 1), Row(16, 1), Row(127, 1), Row(128, 1), Row(700, 1), Row(0, 40), Row(33, 7), Row(500, 17)]

pytestmark = pytest.mark.skipif(not cpu.is_built(), reason="the C kernels are not built here")


@pytest.fixture(params=variants())
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ops(variant: str) -> Ops:
    return cpu.build(False, 2, variant)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 112, 128, 256])
def test_every_head_width_gives_the_dense_result(variant: str, ops: Ops, head_dim: int, dtype: str) -> None:
    case = make_case(ops, Geometry(16, 1, 2, head_dim, dtype), 4, MIXED)
    error = np.abs(run(ops, case) - dense(case))
    most = BYTES if (variant, dtype) == ("amx", "int8") else TOLERANCE[dtype]
    assert error.max() <= most
    assert error.mean() <= most / 10


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_query_that_is_no_number_gives_none(ops: Ops, dtype: str) -> None:
    case = make_case(ops, Geometry(16, 1, 2, 64, dtype), 4, MIXED)
    good = run(ops, case)
    assert np.isfinite(good).all()
    case.qkv[3, 1, 7] = np.nan if case.qkv.dtype == np.float32 else 0x7FC0
    out = run(ops, case)
    assert np.isnan(out[3, 1]).all()
    np.testing.assert_array_equal(np.delete(out, 3, 0), np.delete(good, 3, 0))
