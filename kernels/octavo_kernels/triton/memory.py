"""Where arrays lie: in the memory of a device, and the host tier in main memory that copies reach directly."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from octavo_kernels.ops import Geometry
from octavo_kernels.triton.device import Device
from octavo_kernels.triton.tensors import DTYPES


def functions(device: Device) -> dict[str, Any]:
    """Those of the door that take memory."""
    return {each.__name__: partial(each, device) for each in (new_buffer, new_pool, new_host_pool)}


def new_buffer(device: Device, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """Zeros. Raises MemoryError."""
    return taken(lambda: torch.zeros(shape, dtype=DTYPES[dtype], device=device.place))


def new_pool(device: Device, geometry: Geometry, num_pages: int) -> torch.Tensor:
    """uint8 [num_pages + 1, page bytes]. Raises MemoryError."""
    shape = (num_pages + 1, geometry.page_bytes)
    return taken(lambda: torch.empty(shape, dtype=torch.uint8, device=device.place))


def new_host_pool(device: Device, geometry: Geometry, num_pages: int) -> torch.Tensor:
    """The same in main memory. Raises MemoryError."""
    size = (num_pages + 1) * geometry.page_bytes
    return taken(lambda: device.pinned(size).view(num_pages + 1, geometry.page_bytes))


def taken(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    try:
        return make()
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        raise MemoryError(str(error)) from error
