"""Where arrays lie. Anything with memory will do: numpy arrays, torch tensors; bfloat16 is uint16 to numpy."""

import mmap

import numpy as np

from octavo_kernels.cpu.library import TYPES, Matrix
from octavo_kernels.ops import Array, Geometry

HUGE_PAGE = 2 << 20
LINE = 64
CHUNK = 32 << 20
NUMPY = {"float32": np.float32, "int32": np.int32, "bfloat16": np.uint16, "float16": np.float16, "int8": np.int8}
TYPE_OF = {"float32": "float32", "uint16": "bfloat16", "bfloat16": "bfloat16"}


class Arena:
    """Memory in huge pages. Weights read through pages of 4 KiB come at 13 GB/s a core where these give 36."""

    def __init__(self) -> None:
        self.rest = np.zeros(0, np.uint8)

    def take(self, num_bytes: int) -> np.ndarray:
        """uint8 zeros, beginning at a multiple of 64 bytes. A chunk lives as long as any array in it."""
        start = -address(self.rest) % LINE
        if start + num_bytes > len(self.rest):
            self.rest, start = huge_pages(max(num_bytes, CHUNK)), 0
        taken, self.rest = self.rest[start : start + num_bytes], self.rest[start + num_bytes :]
        return taken


ARENA = Arena()


def new_buffer(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Zeros, beginning at a multiple of 64 bytes. Rows of a matrix lie an odd number of cache lines apart: tiles read 16
    rows at once, and at a distance of 3,072 bytes, say, they would share four sets of the first cache. Raises MemoryError.
    """
    kind = np.dtype(NUMPY[dtype])
    if len(shape) != 2:
        return ARENA.take(int(np.prod(shape)) * kind.itemsize).view(kind).reshape(shape)
    rows, width = shape
    stride = (-(-width * kind.itemsize // LINE) | 1) * LINE
    return ARENA.take(rows * stride).view(kind).reshape(rows, stride // kind.itemsize)[:, :width]


def new_pool(geometry: Geometry, num_pages: int) -> np.ndarray:
    """uint8 [num_pages + 1, page bytes], taken from the system page by page as tokens come. Raises MemoryError."""
    return huge_pages((num_pages + 1) * geometry.page_bytes).reshape(num_pages + 1, geometry.page_bytes)


def huge_pages(size: int) -> np.ndarray:
    """uint8 [size] zeros, not yet taken from the system. Raises MemoryError."""
    try:
        memory = mmap.mmap(-1, size + HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(str(error)) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    room = np.frombuffer(memory, np.uint8)
    start = -address(room) % HUGE_PAGE
    return room[start : start + size]


def address(array: Array) -> int:
    """Of the first element."""
    pointer: int = array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data
    return pointer


def dtype_of(array: Array) -> str:
    """float32 or bfloat16. Raises TypeError for others."""
    name = str(array.dtype).removeprefix("torch.")
    if name not in TYPE_OF:
        raise TypeError(f"these kernels compute in float32 and bfloat16, not {name}")
    return TYPE_OF[name]


def matrix(array: Array | None) -> Matrix:
    """Rows of the last dimension; the ones before it are one. No array: a null matrix."""
    if array is None:
        return Matrix(None, 0, 0, 0)
    width = 1
    for size in array.shape[1:]:
        width *= int(size)
    dtype = dtype_of(array)
    item = 4 if dtype == "float32" else 2
    stride = int(array.stride(0)) * item if hasattr(array, "data_ptr") else array.strides[0]
    return Matrix(address(array), stride, width, TYPES[dtype])
