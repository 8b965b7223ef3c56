"""Every implementation of the door that this machine runs."""

from functools import cache
from typing import Any

import pytest
from octavo_kernels import cpu
from octavo_kernels.choice import pick
from octavo_kernels.cpu.library import variants
from octavo_kernels.ops import Ops

REFERENCE = ("reference", "reference-invariant")
CPU = tuple(f"cpu-{variant}" for variant in variants())
WHOLE = ("reference", "cpu") if CPU else ("reference",)
"""Names of kernels that `pick` knows."""

TRITON = ("triton",)

every_ops = pytest.mark.parametrize("ops", REFERENCE + CPU + TRITON, indirect=True)
"""The test's `ops` is each of them."""
compiled_ops = pytest.mark.parametrize("ops", REFERENCE + CPU, indirect=True)
"""All that are not interpreted: for tests that would take minutes there."""
invariant_ops = pytest.mark.parametrize("ops", REFERENCE[1:] + CPU, indirect=True)
"""Those whose bits depend on nothing but the row."""


@cache
def build(name: str) -> Ops:
    """One of them, on two threads."""
    kernels, _, variant = name.partition("-")
    if kernels == "cpu":
        return cpu.build(False, 2, variant)
    return pick("cpu", kernels, invariant=variant == "invariant", threads=2)


def fast_ones() -> list[Any]:
    """WHOLE, of which the truth, under which some tests take ten minutes, is for `make equality`."""
    return [pytest.param(name, marks=pytest.mark.on_demand if name.startswith("reference") else ()) for name in WHOLE]
