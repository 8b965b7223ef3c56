"""Paged attention of the C kernels, in every variant of this processor, against dense float64."""

import numpy as np
import pytest
from octavo_kernels import cpu
from octavo_kernels.cpu.library import variants
from octavo_kernels.ops import Geometry, Ops

from tests.kernels.cached import Row, dense, make_case, run

TOLERANCE = {"float32": 3e-6, "float16": 3e-6, "bfloat16": 1e-2, "int8": 2e-2}
MIXED = [Row(0, 1), Row(15, 1), Row(16, 1), Row(127, 1), Row(128, 1), Row(700, 1), Row(0, 40), Row(33, 7), Row(500, 17)]

pytestmark = pytest.mark.skipif(not cpu.is_built(), reason="the C kernels are not built here")


@pytest.fixture(params=variants())
def ops(request: pytest.FixtureRequest) -> Ops:
    return cpu.build(False, 2, request.param)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 112, 128, 256])
def test_every_head_width_gives_the_dense_result(ops: Ops, head_dim: int, dtype: str) -> None:
    case = make_case(ops, Geometry(16, 1, 2, head_dim, dtype), 4, MIXED)
    np.testing.assert_allclose(run(ops, case), dense(case), rtol=0, atol=TOLERANCE[dtype])
