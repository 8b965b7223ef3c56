"""Triton's interpreter, made exact: kernels then run on CPU tensors, to the bit of what their types say.

The interpreter computes on numpy arrays, which know no bfloat16 and no fp8: it adds and multiplies their bits, and rounds
to them wrongly. Here such values go through float32 and are rounded to nearest even; fp8 saturates, as GPUs do.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from triton.language import core
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _get_np_dtype, interpreter_builder

Values = NDArray[Any]
NARROW = {tl.bfloat16: torch.bfloat16, tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
"""Types that numpy does not know, and keeps as their bits."""


def install() -> None:
    """Mend the interpreter of this process. Triton takes it where TRITON_INTERPRET=1 when a kernel is defined."""
    if isinstance(interpreter_builder, Exact):
        return
    interpreter_builder.__class__ = Exact
    # The language is made to interpret at every call of every function, which takes longer than most functions: once do.
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": core}))
    interpreter._patch_lang = lambda function: interpreter._LangPatchScope()
    remember_shapes()


def remember_shapes() -> None:
    """Have types of one shape share what follows from it: to work that out for each value takes a third of all time."""
    describe, known = core.block_type.__init__, dict[tuple[int, ...], tuple[Any, ...]]()
    scalar = core.tuple([]), core.constexpr(1)

    def init_type(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple([size.value if isinstance(size, core.constexpr) else size for size in shape])
        if sizes not in known:
            describe(self, element_ty, shape)
            of_tensor = core.tuple([core.constexpr(size) for size in sizes]), core.constexpr(self.numel)
            known[sizes] = self.shape, self.numel, of_tensor, str(self.shape)
        self.element_ty = element_ty
        self.shape, self.numel, self.of_tensor, words = known[sizes]
        self.name = f"<{words}, {element_ty}>"

    def init_tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = type.of_tensor if type.is_block() else scalar

    core.block_type.__init__, core.tensor.__init__ = init_type, init_tensor


class Exact(InterpreterBuilder):  # type: ignore[misc]
    """A builder that knows narrow types."""

    def cast_impl(self, x: Any, dtype: Any, *_: object) -> Any:
        if x.dtype.scalar not in NARROW and dtype.scalar not in NARROW:
            return super().cast_impl(x, dtype)
        return handle(widened(x), dtype.scalar)

    create_fp_to_fp = cast_impl

    def binary_op(self, left: Any, right: Any, op: Callable[..., Values]) -> Any:
        """A comparison gives truth values, which are not of the type of what is compared, as the interpreter has it."""
        if left.dtype.scalar in NARROW:
            values = op(widened(left), widened(right))
            result = TensorHandle(values, tl.int1) if values.dtype == np.bool_ else handle(values, left.dtype.scalar)
        else:
            with np.errstate(all="ignore"):  # GPUs give infinities and NaN without a word
                result = super().binary_op(left, right, op)
        return TensorHandle(result.data, tl.int1) if result.data.dtype == np.bool_ else result

    def unary_op(self, x: Any, op: Callable[..., Values]) -> Any:
        return handle(op(widened(x)), x.dtype.scalar) if x.dtype.scalar in NARROW else super().unary_op(x, op)

    def create_dot(self, a: Any, b: Any, total: Any, *_: object) -> Any:
        """Integers by way of float64, which holds these sums exactly: numpy multiplies matrices of integers slowly."""
        wide = np.float64 if a.data.dtype.kind in "iu" and a.dtype.scalar not in NARROW else np.float32
        product = np.matmul(widened(a).astype(wide), widened(b).astype(wide))
        return TensorHandle(product.astype(total.data.dtype) + total.data, total.dtype.scalar)


def widened(x: Any) -> Values:
    """The values of a handle, in a type that numpy computes in."""
    narrow = NARROW.get(x.dtype.scalar)
    return np.asarray(x.data if narrow is None else as_torch(x.data).view(narrow).float().numpy())


def handle(values: Values, scalar: Any) -> Any:
    """A handle of values rounded to a type."""
    narrow = NARROW.get(scalar)
    data = values.astype(_get_np_dtype(scalar), copy=False) if narrow is None else rounded(values, narrow)
    return TensorHandle(data, scalar)


def rounded(values: Values, dtype: torch.dtype) -> Values:
    """Bits of values rounded to a narrow type, to nearest even; fp8 saturates."""
    wide = as_torch(values.astype(np.float32))
    if dtype.itemsize == 1:
        most = torch.finfo(dtype).max
        wide = torch.where(wide.isnan(), wide, wide.clamp(-most, most))
    return np.asarray(wide.to(dtype).view(torch.uint8 if dtype.itemsize == 1 else torch.uint16).numpy())


def as_torch(array: Values) -> torch.Tensor:
    """The same values; the interpreter broadcasts without copying, which torch does not take."""
    return torch.from_numpy(np.array(array, order="C", copy=None if array.flags.writeable else True))
