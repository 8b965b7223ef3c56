"""The C library under AddressSanitizer and UBSan. `make sanitize` runs all kernel tests so; here a minute of them is run."""

import subprocess
import sys

import pytest
from octavo_kernels.cpu.library import variants

from tests.kernels import sanitize

pytestmark = [
    pytest.mark.skipif(sanitize.is_on(), reason="this is the run with sanitizers"),
    pytest.mark.skipif(not sanitize.is_possible(), reason="no C compiler with sanitizers here"),
    pytest.mark.timeout(900),
]

FEW = ("attention", "dense", "linear", "sampling")
"""Files of the tests that are run here."""
TAKE_TWO_ROWS = """
import numpy as np
from octavo_kernels import cpu
from octavo_kernels.cpu import library as c
from octavo_kernels.cpu.memory import address, matrix, new_buffer
from octavo_kernels.cpu.tape import Team
from tests.kernels.sanitize import give_each_buffer_its_own_block

give_each_buffer_its_own_block()
rows, index = np.array([2], np.int32), np.zeros(2, np.int32)
source, out = new_buffer((1, 40), "float32"), new_buffer((OUT_ROWS, 40), "float32")
team = Team(1, cpu.variants()[-1])
team.do("take_rows", c.TakeRows(address(rows), matrix(source), INDEX, matrix(out)))
print("done")
"""


def take_two_rows(*, out_rows: int, index: str = "address(index)") -> subprocess.CompletedProcess[str]:
    script = TAKE_TWO_ROWS.replace("OUT_ROWS", str(out_rows)).replace("INDEX", index)
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, env=sanitize.environment(), cwd=sanitize.ROOT)


def test_a_write_past_a_buffer_is_caught() -> None:
    right, wrong = take_two_rows(out_rows=2), take_two_rows(out_rows=1)
    assert right.stdout == "done\n", right.stderr
    assert wrong.returncode != 0
    assert "heap-buffer-overflow" in wrong.stderr


def test_undefined_behaviour_is_caught() -> None:
    wrong = take_two_rows(out_rows=2, index="None")
    assert wrong.returncode != 0
    assert "runtime error: load of null pointer" in wrong.stderr


def test_the_kernel_tests_of_the_plainest_and_the_best_variant_find_nothing() -> None:
    files = [f"tests/kernels/test_cpu_{name}.py" for name in FEW]
    assert sanitize.main(["-k", f"{variants()[0]} or {variants()[-1]}", *files]) == 0
