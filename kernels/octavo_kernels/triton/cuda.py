"""The device that is a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from octavo_kernels.choice import KernelsUnavailable
from octavo_kernels.ops import Memory
from octavo_kernels.triton.device import Action, Grid, Mark

CONTEXT_BYTES = 512 << 20
"""What a process takes beside its tensors: code, the stacks of threads, graphs."""
OLDEST = (8, 0)
"""Compute capability of Ampere: the oldest with bfloat16 and asynchronous copies into shared memory."""


def check_is_new_enough(name: str, capability: tuple[int, int]) -> None:
    """Raises KernelsUnavailable for GPUs older than Ampere."""
    if capability < OLDEST:
        raise KernelsUnavailable(
            f"{name} has compute capability {capability[0]}.{capability[1]}, and these kernels need 8.0 (Ampere) or newer; "
            f"use a newer GPU, or --device cpu"
        )


@dataclass(frozen=True, slots=True)
class CudaMark:
    """An event of CUDA."""

    event: torch.cuda.Event

    def is_reached(self) -> bool:
        return bool(self.event.query())

    def wait(self) -> None:
        self.event.synchronize()

    def seconds_since(self, earlier: Mark) -> float:
        assert isinstance(earlier, CudaMark)
        return float(earlier.event.elapsed_time(self.event)) / 1e3


class CudaQueue:
    """A stream of CUDA."""

    def __init__(self, place: torch.device) -> None:
        self.stream = torch.cuda.Stream(place)

    def launch(self, kernel: Any, grid: Grid, *arguments: object, **options: Any) -> None:
        with torch.cuda.stream(self.stream):
            kernel[grid](*arguments, **({"enable_fp_fusion": True} | options))

    def do(self, action: Action) -> None:
        with torch.cuda.stream(self.stream):
            action()

    def mark(self) -> CudaMark:
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return CudaMark(event)

    def wait(self, mark: Mark) -> None:
        assert isinstance(mark, CudaMark)
        self.stream.wait_event(mark.event)


class Cuda:
    """One GPU. Raises KernelsUnavailable if there is none of that name, or it is too old."""

    def __init__(self, name: str = "cuda") -> None:
        if not torch.cuda.is_available():
            raise KernelsUnavailable(f"there is no GPU for --device {name} that torch {torch.__version__} can use")
        self.place = torch.device(name)
        if (self.place.index or 0) >= torch.cuda.device_count():
            raise KernelsUnavailable(f"there is no {name}; this machine has {torch.cuda.device_count()} GPUs")
        found = torch.cuda.get_device_properties(self.place)
        if torch.version.hip is None:
            check_is_new_enough(found.name, (found.major, found.minor))
        torch.cuda.set_device(self.place)
        self.multiprocessors = int(found.multi_processor_count)
        self.main, self.side = CudaQueue(self.place), CudaQueue(self.place)
        torch.cuda.set_stream(self.main.stream)  # what torch does on its own account comes in order with the kernels

    def capture(self, body: Action) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.main.stream):
            body()
        return lambda: self.main.do(graph.replay)

    def pinned(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def memory(self) -> Memory:
        free, total = torch.cuda.mem_get_info(self.place)
        return Memory(total, free, torch.cuda.memory_reserved(self.place) + CONTEXT_BYTES)
