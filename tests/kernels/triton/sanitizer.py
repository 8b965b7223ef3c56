"""A sanitizer of Triton kernels, over the interpreter.

Within `sanitized()` every element that a kernel touches must lie inside the storage of one of its arguments, lanes that are
masked off read a poison unless the kernel says what they hold, no program touches what another one writes, and programs
run in an order that is drawn anew for each launch.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import torch
from octavo_kernels.triton import interpreter
from octavo_kernels.triton.interpreter import Exact
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import GridExecutor, TensorHandle, _get_np_dtype, interpreter_builder

POISON = 0x7F
"""Each byte of what masked lanes read: the largest bfloat16 and nearly the largest float32, NaN in float16."""
NOBODY, SEVERAL = -1, -2


class ViolationError(Exception):
    """A kernel does what no kernel may."""


class Watch:
    """Over one launch: who has read and written each byte of the storages of its arguments."""

    def __init__(self, arguments: list[Any], grid: tuple[int, ...], rng: random.Random) -> None:
        storages = {x.untyped_storage().data_ptr(): x.untyped_storage() for x in arguments if torch.is_tensor(x)}
        spans = sorted((start, start + storage.nbytes()) for start, storage in storages.items() if storage.nbytes())
        self.spans = np.array(spans or [(0, 0)], np.int64)  # [storages, (begin, end)]
        sizes = self.spans[:, 1] - self.spans[:, 0]
        self.base = np.cumsum(sizes) - sizes - self.spans[:, 0]  # address + base = index into what follows
        self.writer = np.full(int(sizes.sum()), NOBODY, np.int64)
        self.reader = np.full(int(sizes.sum()), NOBODY, np.int64)
        self.program = NOBODY
        places = list(product(*(range(size) for size in (*grid, 1, 1)[:3])))
        self.order = dict(zip(places, rng.sample(places, len(places)), strict=True))

    def begin(self, place: tuple[int, ...]) -> tuple[int, ...]:
        """The program that runs when that of `place` should."""
        self.program = list(self.order).index(place)
        return self.order[place]

    def indices(self, pointers: np.ndarray, mask: np.ndarray, size: int) -> np.ndarray:
        """Of the elements that are touched. Raises ViolationError if one is nobody's."""
        address = pointers[np.broadcast_to(mask, pointers.shape)].astype(np.int64)
        storage = np.searchsorted(self.spans[:, 0], address, side="right") - 1
        if (storage < 0).any() or (address + size > self.spans[storage, 1]).any():
            raise ViolationError("an address lies outside the arguments")
        return np.asarray(address + self.base[storage])

    def read(self, index: np.ndarray) -> None:
        reader = self.reader[index]
        self.reader[index] = np.where((reader == NOBODY) | (reader == self.program), self.program, SEVERAL)
        if not np.isin(self.writer[index], (NOBODY, self.program)).all():
            raise ViolationError("a program reads what another one writes")

    def write(self, index: np.ndarray) -> None:
        if len(np.unique(index)) < len(index):
            raise ViolationError("a program writes twice to one place at once")
        if not np.isin(self.writer[index], (NOBODY, self.program)).all():
            raise ViolationError("two programs write to one place")
        if not np.isin(self.reader[index], (NOBODY, self.program)).all():
            raise ViolationError("a program writes what another one reads")
        self.writer[index] = self.program


class Watched(Exact):
    """A builder that tells what is touched."""

    watch: Watch

    def set_grid_idx(self, *place: int) -> None:
        super().set_grid_idx(*self.watch.begin(place))

    def touched(self, pointers: Any, mask: Any) -> np.ndarray:
        return self.watch.indices(pointers.data, mask.data, pointers.get_element_ty().primitive_bitwidth // 8)

    def create_masked_load(self, pointers: Any, mask: Any, other: Any, *options: Any) -> Any:
        self.watch.read(self.touched(pointers, mask))
        if other is None:
            kind = pointers.get_element_ty()
            element = np.frombuffer(bytes([POISON]) * 8, _get_np_dtype(kind), 1)
            other = TensorHandle(np.broadcast_to(element, pointers.data.shape).copy(), kind)
        return super().create_masked_load(pointers, mask, other, *options)

    def create_masked_store(self, pointers: Any, value: Any, mask: Any, *options: Any) -> Any:
        self.watch.write(self.touched(pointers, mask))
        return super().create_masked_store(pointers, value, mask, *options)

    def create_atomic_rmw(self, operation: Any, pointers: Any, value: Any, mask: Any, *options: Any) -> Any:
        self.touched(pointers, mask)
        return super().create_atomic_rmw(operation, pointers, value, mask, *options)


@contextmanager
def sanitized(seed: int = 0) -> Iterator[None]:
    """Launches within raise ViolationError at the first thing that no kernel may do."""
    interpreter.install()
    rng, launch = random.Random(seed), GridExecutor.__call__

    def watched(self: Any, *arguments: Any, **options: Any) -> None:
        interpreter_builder.watch = Watch([*arguments, *options.values()], self.grid, rng)
        try:
            launch(self, *arguments, **options)
        except InterpreterError as error:
            raise found(error) from error

    interpreter_builder.__class__, GridExecutor.__call__ = Watched, watched
    try:
        yield
    finally:
        interpreter_builder.__class__, GridExecutor.__call__ = Exact, launch


def found(error: BaseException) -> BaseException:
    """What is at the bottom of an error of the interpreter, if it is a violation."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ViolationError):
        cause = cause.__cause__
    return cause or error
