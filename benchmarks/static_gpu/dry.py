"""A device that writes down what is launched on it, and does nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from octavo_kernels.ops import Memory
from octavo_kernels.triton.device import Action, Grid, Mark


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel as a wrapper would launch it."""

    kernel: Any
    grid: Grid
    arguments: tuple[object, ...]
    options: dict[str, Any]

    @property
    def needs_fp8(self) -> bool:
        """Whether it is given elements of that type."""
        return any(isinstance(each, torch.Tensor) and each.dtype == torch.float8_e4m3fn for each in self.arguments)


class DryMark:
    """Everything is done at once."""

    def is_reached(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def seconds_since(self, earlier: Mark) -> float:
        return 0.0


@dataclass(slots=True)
class DryQueue:
    """Launches, in order."""

    launches: list[Launch] = field(default_factory=list)

    def launch(self, kernel: Any, grid: Grid, *arguments: object, **options: Any) -> None:
        self.launches.append(Launch(kernel, grid, arguments, options))

    def do(self, action: Action) -> None:
        pass

    def mark(self) -> DryMark:
        return DryMark()

    def wait(self, mark: Mark) -> None:
        pass


class Dry:
    """A GPU with the multiprocessors of an H100."""

    place = torch.device("cpu")
    multiprocessors = 132

    def __init__(self) -> None:
        self.main = self.side = DryQueue()

    def capture(self, body: Action) -> Callable[[], None]:
        body()
        return lambda: None

    def pinned(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)

    def memory(self) -> Memory:
        return Memory(80 << 30, 80 << 30, 0)
