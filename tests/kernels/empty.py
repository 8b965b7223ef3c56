"""A step of nothing, for what is captured without one."""

import numpy as np
from octavo_kernels.ops import Geometry, Step


def empty_step() -> Step:
    """Room for no token."""
    none = np.zeros(0, np.int32)
    geometry = Geometry(16, 1, 1, 16, "float32")
    return Step(geometry, none, none, none.astype(np.int64), none, np.zeros(1, np.int32), none, none, none, none, none)
