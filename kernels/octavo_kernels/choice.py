"""Which kernels run here, and which of them to take."""

import os
from collections.abc import Callable

from octavo_kernels.ops import Ops


class KernelsUnavailable(ValueError):
    """No kernels of that name run on that device, or none compute in that dtype. The message lists those that do."""


def pick(
    device: str, name: str | None = None, *, dtype: str = "auto", invariant: bool = False, threads: int | None = None
) -> Ops:
    """The kernels called `name`, else the best ones for `device` that compute in `dtype`. Raises KernelsUnavailable.

    `dtype` "auto": whatever they like best. `threads` None: one a core.
    """
    choices = runnable(device)
    if name is not None and name not in choices:
        names = ", ".join(choices) or "none"
        raise KernelsUnavailable(f"kernels {name!r} do not run on device {device!r}; these do: {names}")
    found = []
    for each in choices if name is None else [name]:
        ops = choices[each](invariant, threads or os.cpu_count() or 1)
        if name is not None or dtype in ("auto", *ops.dtypes):
            return ops
        found.append(f"{each} in {', '.join(ops.dtypes)}")
    others = f"these do: {'; '.join(found)}" if found else "none do"
    raise KernelsUnavailable(f"no kernels compute in {dtype} on device {device!r}; {others}")


def runnable(device: str) -> dict[str, Callable[[bool, int], Ops]]:
    """Builders of the kernels that run on `device`, best first."""
    if device.partition(":")[0] == "cuda":
        return {"triton": build_triton(device)}
    if device != "cpu":
        return {}
    from octavo_kernels import cpu

    compiled = {"cpu": cpu.build} if cpu.is_built() else {}
    interpreted = {"triton": build_triton(device)} if os.environ.get("TRITON_INTERPRET") == "1" else {}
    return compiled | {"reference": build_reference} | interpreted


def build_triton(device: str) -> Callable[[bool, int], Ops]:
    """Builds the Triton kernels. Torch and Triton are imported then and no earlier."""

    def build(invariant: bool, threads: int) -> Ops:
        from octavo_kernels import triton

        return triton.build(device, invariant)

    return build


def build_reference(invariant: bool, threads: int) -> Ops:
    """The reference kernels. Torch is imported here and no earlier."""
    from octavo_kernels.reference import build

    return build(invariant, threads)
