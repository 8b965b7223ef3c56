"""The interpreter is the oracle of all other tests of Triton kernels, so it is tested first."""

import pytest
import torch
import triton
import triton.language as tl
from octavo_kernels.triton import interpreter

interpreter.install()
NARROW = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)


@triton.jit
def convert(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


@triton.jit
def multiply(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + i, tl.dot(tl.load(a + i), tl.load(b + i)))


@triton.jit
def compute(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(a + i), tl.load(b + i)
    tl.store(out + i, tl.where(x > y, x * y, -x + y))


@triton.jit
def choose(least, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, 1, (i < N - 1) & (tl.load(least).to(tl.int64) >= 0))


@pytest.mark.parametrize("dtype", NARROW)
def test_conversions_round_to_nearest_even_and_fp8_saturates(dtype: torch.dtype) -> None:
    x = torch.cat((torch.randn(4000) * 300, torch.tensor([0.0, -0.0, 1e-9, 1e9, -1e9, 1e-6, 2**-9, 448, 464])))
    x = torch.nn.functional.pad(x, (0, 4096 - len(x)))
    if dtype == torch.float16:
        x = x.clamp(-65504, 65504)
    out = torch.zeros(4096, dtype=dtype)
    convert[(1,)](x, out, 4096)
    most = torch.finfo(dtype).max if dtype.itemsize == 1 else torch.inf
    wanted = x.clamp(-most, most).to(dtype)
    assert torch.equal(out.float(), wanted.float())
    back = torch.zeros(4096)
    convert[(1,)](wanted, back, 4096)
    assert torch.equal(back, wanted.float())


@pytest.mark.parametrize("dtype", NARROW)
def test_products_of_matrices_are_those_of_their_values(dtype: torch.dtype) -> None:
    a, b = torch.randn(2, 32, 32).to(dtype)
    out = torch.zeros(32, 32)
    multiply[(1,)](a, b, out, 32)
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-6, atol=1e-5)


def test_products_of_bytes_are_exact() -> None:
    a, b = torch.randint(-128, 128, (2, 32, 32), dtype=torch.int8)
    out = torch.zeros(32, 32, dtype=torch.int32)
    multiply[(1,)](a, b, out, 32)
    assert torch.equal(out, a.int() @ b.int())


def test_arithmetic_and_comparisons_of_bfloat16_are_on_values_not_on_bits() -> None:
    a, b = torch.randn(2, 1024).bfloat16()
    out = torch.zeros_like(a)
    compute[(1,)](a, b, out, 1024)
    assert torch.equal(out, torch.where(a > b, a * b, -a + b))


def test_a_comparison_of_scalars_joins_one_of_vectors() -> None:
    out = torch.zeros(8, dtype=torch.int32)
    choose[(1,)](torch.zeros(1, dtype=torch.int32), out, 8)
    assert out.tolist() == [1] * 7 + [0]
