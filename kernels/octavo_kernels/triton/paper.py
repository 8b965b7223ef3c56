"""The device that is none: kernels run in Triton's interpreter, on main memory.

Work waits until somebody waits for it, as it would on a GPU that is far behind: main memory that was changed too early, a
result that was read too early, a queue that should have waited for another all show as wrong numbers. Its marks are
counted in work done, not in seconds.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from octavo_kernels.ops import Memory
from octavo_kernels.triton import interpreter
from octavo_kernels.triton.device import Action, Grid, Mark

BYTES = 1 << 30
"""Of its memory."""


@dataclass(frozen=True, slots=True)
class PaperMark:
    """So many pieces of work of a queue."""

    queue: "PaperQueue"
    count: int

    def is_reached(self) -> bool:
        return self.queue.done >= self.count

    def wait(self) -> None:
        self.queue.run_until(self.count)

    def seconds_since(self, earlier: Mark) -> float:
        assert isinstance(earlier, PaperMark)
        return 1e-6 * (self.count - earlier.count)


class PaperQueue:
    """Work that is done when it is waited for; at once, if it `is_prompt`."""

    def __init__(self, *, is_prompt: bool) -> None:
        self.is_prompt = is_prompt
        self.waiting: deque[Action] = deque()
        self.done = 0
        self.recording: list[Action] | None = None

    def launch(self, kernel: Any, grid: Grid, *arguments: object, **options: Any) -> None:
        self.do(lambda: kernel[grid](*arguments, **options))

    def do(self, action: Action) -> None:
        if self.recording is not None:
            self.recording.append(action)
            return
        self.waiting.append(action)
        if self.is_prompt:
            self.run_until(self.end)

    @property
    def end(self) -> int:
        """How much work was ever given."""
        return self.done + len(self.waiting)

    def run_until(self, count: int) -> None:
        """Do what was given first, until so much is done."""
        while self.done < count:
            action = self.waiting.popleft()
            self.done += 1
            action()

    def mark(self) -> PaperMark:
        return PaperMark(self, self.end)

    def wait(self, mark: Mark) -> None:
        self.do(mark.wait)


class Paper:
    """A device whose queues are late, if they are told to be."""

    place = torch.device("cpu")
    multiprocessors = 4

    def __init__(self, *, is_main_late: bool = False, is_side_late: bool = False) -> None:
        interpreter.install()
        self.main, self.side = PaperQueue(is_prompt=not is_main_late), PaperQueue(is_prompt=not is_side_late)
        self.captures = 0

    def capture(self, body: Action) -> Callable[[], None]:
        self.captures += 1
        recording: list[Action] = []
        self.main.recording = recording
        try:
            body()
        finally:
            self.main.recording = None

        def replay() -> None:
            for action in recording:
                action()

        return lambda: self.main.do(replay)

    def pinned(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)

    def memory(self) -> Memory:
        return Memory(BYTES, BYTES, 0)
