"""Ops of somebody's own: a package replaces attention, positions or whatever else a step is made of.

It announces functions `(Ops) -> Ops` under the entry-point group `octavo.ops`, which use `dataclasses.replace`. What they
put into a step is Python, so that kernels that record a step cut their recording there (`Ops.call`). Without a package,
FILE.py:NAME does as well: NAME is such a function, or a class with the `forward` of `reference.by_row`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from octavo_kernels.choice import KernelsUnavailable
from octavo_kernels.ops import Ops

GROUP = "octavo.ops"
OF_A_STEP = (
    *("prepare", "take_tokens", "take_rows", "embed", "linear", "gated_linear", "rms_norm"),
    *("rope_and_write", "attention", "silu_mul", "bias_logits", "mask_logits", "sample", "logprobs"),
)
"""Fields of Ops that run inside a step."""


def customise(ops: Ops, name: str) -> Ops:
    """These kernels with what the package that announced `name`, or the file, replaces. Raises KernelsUnavailable."""
    found = find(name)
    try:
        made = apply(found.load(), ops)
    except Exception as error:  # whatever somebody's code does, it is one sentence here
        raise KernelsUnavailable(f"ops {name!r} ({found.value}) failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, Ops):
        raise KernelsUnavailable(f"ops {name!r} ({found.value}) gave {type(made).__name__}, not Ops")
    own = {each: getattr(made, each) for each in OF_A_STEP if getattr(made, each) is not getattr(ops, each)}
    wrapped: dict[str, Any] = {each: in_python(ops.call, compute) for each, compute in own.items()}
    return replace(made, name=f"{ops.name}+{found.name}", **wrapped)


def apply(own: Any, ops: Ops) -> Any:
    """What a function makes of these kernels; a class with `forward` takes the place of attention."""
    if not (isinstance(own, type) and hasattr(own, "forward")):
        return own(ops)
    from octavo_kernels.reference.by_row import with_attention  # and torch, which others do without

    return with_attention(ops, own().forward)


def identity(name: str) -> str:
    """Name and version, or the digest of the file: what answers follow from. Raises KernelsUnavailable."""
    found = find(name)
    if isinstance(found, File):
        return f"{found.name} of {sha256(found.path.read_bytes()).hexdigest()}"
    package = found.dist
    return name if package is None else f"{name} of {package.name} {package.version}"


def find(name: str) -> "EntryPoint | File":
    """Raises KernelsUnavailable, which lists what there is."""
    path, _, attribute = name.rpartition(":")
    if path.endswith(".py"):
        if not Path(path).is_file():
            raise KernelsUnavailable(f"there is no file {path}")
        return File(Path(path), attribute)
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        raise KernelsUnavailable(
            f"no package has ops {name!r}; there are {', '.join(sorted(found)) or 'none'}. FILE.py:NAME does as well"
        )
    return found[name]


@dataclass(frozen=True)
class File:
    """A name in a file of Python, like an entry point."""

    path: Path
    name: str

    @property
    def value(self) -> str:
        """Where it is."""
        return f"{self.path}:{self.name}"

    def load(self) -> Any:
        """Runs the file as a module of its own and gives what it calls `name`. Files beside it can be imported."""
        name = f"octavo_ops_{sha256(str(self.path).encode()).hexdigest()[:16]}"
        if name not in sys.modules:
            spec = spec_from_file_location(name, self.path)
            assert spec is not None, "the name ends with .py"
            assert spec.loader is not None
            sys.path.append(str(self.path.parent))
            sys.modules[name] = module_from_spec(spec)
            try:
                spec.loader.exec_module(sys.modules[name])
            except BaseException:
                del sys.modules[name]
                raise
        return getattr(sys.modules[name], self.name)


def in_python(call: Callable[[Callable[[], None]], None], compute: Callable[..., None]) -> Callable[..., None]:
    """`compute` as an op of a step that may be recorded."""

    def op(*arguments: Any, **named: Any) -> None:
        call(lambda: compute(*arguments, **named))

    return op
