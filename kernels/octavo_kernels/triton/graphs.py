"""Steps captured as graphs, one for each room that they come in.

The first step of a room is run kernel by kernel, which compiles what is not compiled yet; the second is captured. A worker
can therefore join as soon as its weights are there.
"""

import numpy as np
import torch

from octavo_kernels.ops import Replay, Step
from octavo_kernels.triton.device import Action
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.mirror import Mirror
from octavo_kernels.triton.room import Room


class Graphs:
    """Replays what computes a step."""

    def __init__(self, launcher: Launcher, mirror: Mirror, step: Step, body: Action) -> None:
        self.launcher, self.mirror, self.step, self.body = launcher, mirror, step, body
        self.most = Room(
            tokens=len(step.token),
            rows=len(step.row_slot),
            samples=len(step.sample_slot),
            query=len(step.token),
            biased=len(step.bias_slot),
            scores=len(step.score_slot),
        )
        self.graphs: dict[Room, Replay | None] = {}  # None: was run once

    def replay(self) -> None:
        """One step, on the main queue."""
        self.mirror.flush()
        room = self.room()
        with self.launcher.sized(self.step, room):
            if room not in self.graphs:
                self.graphs[room] = None
                self.body()
                return
            graph = self.graphs[room] or self.launcher.device.capture(self.body)
        self.graphs[room] = graph
        graph()

    def room(self) -> Room:
        """Of the step as main memory has it."""
        names = ("tokens", "rows", "samples", "longest", "biased", "scores")
        return Room.of(**{name: self.counted(getattr(self.step, name)) for name in names}, most=self.most)

    def counted(self, tensor: torch.Tensor) -> int:
        host = self.mirror.host(tensor)
        assert host is not None, "the counts of a step are shared"
        return int(host[0])


def capture(launcher: Launcher, mirror: Mirror, step: Step, body: Action) -> Replay:
    """See Ops.capture. A step whose counts are no shared arrays is of one size and is captured at once."""
    if isinstance(step.tokens, np.ndarray):
        return launcher.device.capture(body)
    return Graphs(launcher, mirror, step, body).replay
