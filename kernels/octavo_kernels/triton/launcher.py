"""Launches kernels for steps of a room."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from octavo_kernels.ops import Array, Step
from octavo_kernels.triton.device import Action, Device, Grid
from octavo_kernels.triton.room import Room


class Launcher:
    """Puts kernels on the main queue of a device. `room` is that of the step at hand; None: nothing is known of it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.room: Room | None = None
        self.counts: dict[int, int] = {}  # of the room, by the address of the array that holds the count

    def __call__(self, kernel: Any, grid: Grid, *arguments: object, **options: Any) -> None:
        """See Queue.launch."""
        self.device.main.launch(kernel, grid, *arguments, **options)

    def do(self, action: Action) -> None:
        """See Queue.do."""
        self.device.main.do(action)

    @contextmanager
    def sized(self, step: Step, room: Room) -> Iterator[None]:
        """Launch for steps of a room meanwhile."""
        self.room = room
        of = {"tokens": room.tokens, "rows": room.rows, "samples": room.samples, "biased": room.biased}
        of |= {"scores": room.scores, "head_rows": room.samples + room.scores}
        self.counts = {getattr(step, name).data_ptr(): size for name, size in of.items()}
        try:
            yield
        finally:
            self.room, self.counts = None, {}

    def most(self, rows: Array, capacity: int) -> int:
        """How many rows a launch must hold: what the room says of this count, else all that a buffer has."""
        return capacity if isinstance(rows, np.ndarray) else min(self.counts.get(rows.data_ptr(), capacity), capacity)

    def count(self, rows: Array) -> torch.Tensor:
        """The count where the device can read it."""
        if isinstance(rows, np.ndarray):
            return torch.from_numpy(rows).to(self.device.place)
        assert isinstance(rows, torch.Tensor)
        return rows
