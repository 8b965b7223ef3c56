"""The hot loops of the C kernels are made of the instructions that they are fast for, and keep their sums in registers."""

import platform
import shutil

import pytest
from octavo_kernels.cpu.library import PATH

from tests.kernels.assembly import Loop, read_loops

LINEAR = ("multiply",)
ATTENTION = ("attend", "score", "mix", "sum_span")  # the compiler decides which of them is part of which

# Variant, functions whose name begins so, instruction, how many of them in one loop, what share of the loop they make up.
HOT = [
    ("avx2", LINEAR, "vfmadd231ps", 12, 0.4),
    ("avx512", LINEAR, "vfmadd231ps", 24, 0.5),
    ("avx512bf16", LINEAR, "vdpbf16ps", 24, 0.45),
    ("avx512bf16", LINEAR, "vpdpbusd", 24, 0.45),
    ("avx512bf16", ATTENTION, "vdpbf16ps", 24, 0.4),
    ("amx", LINEAR, "tdpbf16ps", 4, 0.15),
    ("amx", LINEAR, "tdpbusd", 4, 0.15),
    ("amx", LINEAR, "vfmadd231ps", 16, 0.3),  # few rows
    ("amx", LINEAR, "vpdpbusd", 24, 0.45),
    ("amx", ATTENTION, "tdpbf16ps", 4, 0.2),
    ("amx", ATTENTION, "tdpbssd", 2, 0.05),
]

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64" or not PATH.exists(), reason="no C kernels for x86-64 here"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="there is no objdump"),
]


@pytest.fixture(scope="module")
def loops() -> list[Loop]:
    return read_loops(PATH)


@pytest.mark.parametrize(("variant", "function", "instruction", "number", "share"), HOT)
def test_a_hot_loop_is_made_of_the_fast_instruction_and_spills_nothing(
    loops: list[Loop], variant: str, function: tuple[str, ...], instruction: str, number: int, share: float
) -> None:
    named = [loop for loop in loops if loop.variant == variant and loop.function.startswith(function)]
    hot = [loop for loop in named if loop.count(instruction) >= number and loop.share(instruction) >= share]
    assert hot, max(((loop.count(instruction), loop.share(instruction)) for loop in named), default="no such function")
    assert any(not loop.spills for loop in hot)


def test_the_plain_variant_has_no_instruction_that_some_processors_lack(loops: list[Loop]) -> None:
    plain = [loop for loop in loops if loop.variant == "generic"]
    assert len(plain) > 50
    assert not [each for loop in plain for each in loop.body if "%ymm" in each[2] or "%zmm" in each[2]]


def test_no_variant_before_bfloat16_has_its_dot_products(loops: list[Loop]) -> None:
    older = [loop for loop in loops if loop.variant in ("generic", "avx2", "avx512")]
    assert not [loop for loop in older if any(loop.count(name) for name in ("vdpbf16ps", "vpdpbusd", "tdpbf16ps"))]
