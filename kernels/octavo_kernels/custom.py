"""Ops of somebody's own: a package replaces attention, positions or whatever else a step is made of.

It announces functions `(Ops) -> Ops` under the entry-point group `octavo.ops`, which use `dataclasses.replace`. What they
put into a step is Python, so that kernels that record a step cut their recording there (`Ops.call`).
"""

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from octavo_kernels.choice import KernelsUnavailable
from octavo_kernels.ops import Ops

GROUP = "octavo.ops"
OF_A_STEP = (
    *("prepare", "take_tokens", "take_rows", "embed", "linear", "gated_linear", "rms_norm"),
    *("rope_and_write", "attention", "silu_mul", "sample", "logprobs"),
)
"""Fields of Ops that run inside a step."""


def customise(ops: Ops, name: str) -> Ops:
    """These kernels with what the package that announced `name` replaces. Raises KernelsUnavailable."""
    entry = find(name)
    try:
        made = entry.load()(ops)
    except Exception as error:  # whatever somebody's code does, it is one sentence here
        raise KernelsUnavailable(f"ops {name!r} ({entry.value}) failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, Ops):
        raise KernelsUnavailable(f"ops {name!r} ({entry.value}) gave {type(made).__name__}, not Ops")
    own = {each: getattr(made, each) for each in OF_A_STEP if getattr(made, each) is not getattr(ops, each)}
    wrapped: dict[str, Any] = {each: in_python(ops.call, compute) for each, compute in own.items()}
    return replace(made, name=f"{ops.name}+{name}", **wrapped)


def identity(name: str) -> str:
    """Name and version: what answers follow from. Raises KernelsUnavailable."""
    package = find(name).dist
    return name if package is None else f"{name} of {package.name} {package.version}"


def find(name: str) -> EntryPoint:
    """Raises KernelsUnavailable, which lists what there is."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        raise KernelsUnavailable(f"no package has ops {name!r}; there are {', '.join(sorted(found)) or 'none'}")
    return found[name]


def in_python(call: Callable[[Callable[[], None]], None], compute: Callable[..., None]) -> Callable[..., None]:
    """`compute` as an op of a step that may be recorded."""

    def op(*arguments: Any, **named: Any) -> None:
        call(lambda: compute(*arguments, **named))

    return op
