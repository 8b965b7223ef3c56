"""Moving pages: within the device on the main queue, to and from the host tier on the side queue, beside the steps."""

from collections import deque
from collections.abc import Callable

import numpy as np
import torch

from octavo_kernels.triton.device import Device, Mark, Queue

Pages = Callable[[Queue, torch.Tensor, np.ndarray, torch.Tensor, np.ndarray], None]


class Moves:
    """The functions of the door that move pages. `on_device` moves them within the memory of the device."""

    def __init__(self, device: Device, on_device: Pages) -> None:
        self.device, self.on_device = device, on_device
        self.fence_at: Mark | None = None
        self.timed: deque[tuple[Mark, Mark]] = deque()
        self.seconds = 0.0

    def move_pages(
        self, source: torch.Tensor, source_ids: np.ndarray, target: torch.Tensor, target_ids: np.ndarray
    ) -> None:
        """See ops.MovePages."""
        main, side = self.device.main, self.device.side
        if source is target:
            self.on_device(main, source, source_ids, target, target_ids)
            return
        side.wait(main.mark())
        begin = side.mark()
        pairs = list(zip(source_ids.tolist(), target_ids.tolist(), strict=True))

        def copy() -> None:
            for source_id, target_id in pairs:
                target[target_id].copy_(source[source_id], non_blocking=True)

        side.do(copy)
        self.fence_at = side.mark()
        self.timed.append((begin, self.fence_at))

    def fence(self) -> None:
        """See ops.Ops."""
        if self.fence_at is not None:
            self.device.main.wait(self.fence_at)
            self.fence_at = None

    def swap_seconds(self) -> float:
        """See ops.Ops."""
        while self.timed and self.timed[0][1].is_reached():
            begin, end = self.timed.popleft()
            self.seconds += end.seconds_since(begin)
        return self.seconds
