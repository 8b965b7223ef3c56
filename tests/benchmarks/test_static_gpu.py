"""Compiling the Triton kernels for GPUs that are not here, and what counts as a fault."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.static_gpu.table import PAGE, Entry, Table, differences, page, read
from benchmarks.static_gpu.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
GOOD: Entry = {
    "registers": 64,
    "spilled": 0,
    "shared": 8192,
    "warps": 4,
    "matrix": 12,
    "instruction": "mma.sync",
    "wide_loads": 3,
    "occupancy": 0.5,
}


def table_of(name: str, **changes: object) -> Table:
    return {name: {target.name: {**GOOD, **changes} for target in TARGETS}}


def test_a_table_without_faults_that_is_as_it_is_checked_in_passes() -> None:
    good = table_of("decode D64, pages bfloat16")
    counts, sentences = differences(good, good)
    assert sentences == []
    assert counts == {
        "kernels": 1,
        "targets": 4,
        "spills": 0,
        "without_matrix_instructions": 0,
        "missing_numbers": 0,
    }


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"spilled": 16}, "spills", "spills 16 bytes"),
        ({"matrix": 0}, "without_matrix_instructions", "has no matrix instruction"),
        ({"registers": None}, "missing_numbers", "no registers"),
        ({"occupancy": None, "spilled": None}, "missing_numbers", "no spilled, occupancy"),
    ],
)
def test_spills_lost_instructions_and_missing_numbers_are_faults(
    changes: dict[str, object], kind: str, sentence: str
) -> None:
    bad = table_of("extend D128, pages bfloat16", **changes)
    counts, sentences = differences(bad, bad)
    assert counts[kind] == len(TARGETS) == len(sentences)
    assert all(sentence in each for each in sentences)


def test_kernels_without_products_and_types_that_a_gpu_lacks_are_not_counted() -> None:
    plain = table_of("rms_norm", matrix=0)
    plain["linear fp8, 16 rows"] = {target.name: {"has_type": False} for target in TARGETS}
    assert differences(plain, plain)[1] == []


def test_kernels_that_come_go_or_fit_less_often_are_told() -> None:
    kept, found = (
        table_of("decode a") | table_of("decode b"),
        table_of("decode b", occupancy=0.25) | table_of("decode c"),
    )
    sentences = differences(found, kept)[1]
    assert len(sentences) == 2 + len(TARGETS)
    assert sum("occupancy of 25%, and had 50%" in each for each in sentences) == len(TARGETS)


def test_a_slower_matrix_instruction_and_a_program_that_has_no_room_are_told() -> None:
    kept = table_of("linear int8, 64 rows")
    slower = differences(table_of("linear int8, 64 rows", instruction="fma"), kept)[1]
    assert slower == [f"linear int8, 64 rows on {each.name} multiplies by fma, and did by mma.sync" for each in TARGETS]
    without_room = table_of("linear int8, 64 rows", occupancy=0)
    assert "needs more shared memory" in differences(without_room, without_room)[1][0]


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read()), "run python -m benchmarks.static_gpu --write"


@pytest.mark.timeout(1800)  # kernels times targets: minutes, and half an hour on no machine
def test_every_kernel_compiles_for_every_target_as_the_table_says() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(ROOT / ".cache" / "triton")
    command = [sys.executable, "-m", "benchmarks.static_gpu"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    counts = json.loads(result.stdout)
    assert counts["kernels"] == len(read())
    assert counts["spills"] == counts["without_matrix_instructions"] == counts["missing_numbers"] == 0
