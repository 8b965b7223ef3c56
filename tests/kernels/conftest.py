"""`ops` by name, for tests that are parametrised over implementations."""

import pytest
from octavo_kernels.ops import Ops

from tests.kernels import sanitize
from tests.kernels.implementations import build

if sanitize.is_on():
    sanitize.give_each_buffer_its_own_block()


@pytest.fixture
def ops(request: pytest.FixtureRequest) -> Ops:
    return build(request.param)
