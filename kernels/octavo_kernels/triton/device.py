"""What kernels are put on: queues that run in order, marks in them, graphs, memory that copies reach.

Everything that touches the memory of a device goes through a `Queue`, so that one implementation may be a GPU and another
one the interpreter, which plays a device that is late on purpose (`paper.py`).
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch

from octavo_kernels.ops import Memory

Action = Callable[[], object]
Grid = tuple[int, ...]


class Mark(Protocol):
    """A place in a queue."""

    def is_reached(self) -> bool:
        """Whether `wait` would not."""

    def wait(self) -> None:
        """Until all that came before it in the queue is done; for the thread that calls."""

    def seconds_since(self, earlier: "Mark") -> float:
        """Between two marks that are done, by the device's clock."""


class Queue(Protocol):
    """Work that runs in the order in which it was given, beside the thread that gives it."""

    def launch(self, kernel: Any, grid: Grid, *arguments: object, **options: Any) -> None:
        """A Triton kernel; `options` are its constants, num_warps and num_stages."""

    def do(self, action: Action) -> None:
        """Torch operations on memory of the device."""

    def mark(self) -> Mark:
        """The place where the queue ends now."""

    def wait(self, mark: Mark) -> None:
        """What is given from now on begins once another queue has got to its mark."""


class Device(Protocol):
    """A GPU, or what stands for one."""

    @property
    def place(self) -> torch.device:
        """Where its tensors lie."""

    @property
    def main(self) -> Queue:
        """Of the steps."""

    @property
    def side(self) -> Queue:
        """For copies beside the steps."""

    @property
    def multiprocessors(self) -> int:
        """How many programs run at once, at least."""

    def capture(self, body: Action) -> Callable[[], None]:
        """What `body` puts on the main queue, as one piece that can be put there again. `body` runs once, its work not."""

    def pinned(self, num_bytes: int) -> torch.Tensor:
        """uint8 [num_bytes] of main memory that copies to and from the device need not wait for."""

    def memory(self) -> Memory:
        """As it is now."""
