"""The table of what kernels need, what is a fault in it, and the page that shows it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.static_gpu.targets import TARGETS
from benchmarks.table import markdown

ROOT = Path(__file__).resolve().parents[2]
TABLE, PAGE = Path(__file__).parent / "table.json", ROOT / "docs" / "gpu-kernels.md"
Entry: TypeAlias = dict[str, Any]
Table: TypeAlias = dict[str, dict[str, Entry]]
NUMBERS = ("registers", "spilled", "shared", "occupancy")
MULTIPLY = ("decode", "extend", "linear", "linear_groups")
"""Beginnings of the names of kernels that multiply matrices."""


def read() -> Table:
    """As it is checked in."""
    table: Table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    return table


def multiplies(name: str) -> bool:
    """Whether a kernel of that name has matrix instructions, where the type has them."""
    return name.split()[0] in MULTIPLY and "float32" not in name


def differences(found: Table, kept: Table) -> tuple[dict[str, int], list[str]]:
    """(the counts that the make target prints, a sentence for each fault)."""
    faults = list(faults_of(found))
    counts = {
        "kernels": len(found),
        "targets": len(TARGETS),
        "spills": sum(kind == "spill" for kind, _ in faults),
        "without_matrix_instructions": sum(kind == "matrix" for kind, _ in faults),
        "missing_numbers": sum(kind == "missing" for kind, _ in faults),
    }
    return counts, [sentence for _, sentence in faults] + list(drift(found, kept))


def faults_of(found: Table) -> Iterator[tuple[str, str]]:
    """(kind, sentence)."""
    for name, by_target in found.items():
        for target, entry in by_target.items():
            if entry.get("has_type") is False:
                continue
            lacking = [number for number in NUMBERS if entry.get(number) is None]
            if lacking:
                yield "missing", f"{name} on {target}: no {', '.join(lacking)} ({entry.get('error', 'not found')})"
                continue
            if entry["spilled"]:
                yield "spill", f"{name} on {target} spills {entry['spilled']} bytes a thread"
            if not entry["occupancy"]:
                yield "room", f"{name} on {target} needs more shared memory than a program may have"
            if multiplies(name) and not entry["matrix"]:
                yield "matrix", f"{name} on {target} has no matrix instruction"


def drift(found: Table, kept: Table) -> Iterator[str]:
    """What is not as it is checked in: kernels that came or went, and those that fit less often on a GPU."""
    for name in sorted(found.keys() ^ kept.keys()):
        yield f"{name} is {'not in the table' if name in found else 'gone'}; run python -m benchmarks.static_gpu --write"
    for name in sorted(found.keys() & kept.keys()):
        for target, entry in found[name].items():
            before, now = kept[name].get(target, {}).get("occupancy"), entry.get("occupancy")
            if before is not None and now is not None and now < before:
                yield f"{name} on {target} has an occupancy of {now:.0%}, and had {before:.0%}"
            before, now = kept[name].get(target, {}).get("instruction"), entry.get("instruction")
            if before != now:
                yield f"{name} on {target} multiplies by {now}, and did by {before}"


def page(found: Table) -> str:
    """All of docs/gpu-kernels.md."""
    names = [target.name for target in TARGETS]
    lines = [[name, *(cell(name, by_target[target]) for target in names)] for name, by_target in found.items()]
    return TEXT.format(table=markdown(["kernel", *names], lines))


def cell(name: str, entry: Entry) -> str:
    """Registers, shared memory, occupancy, matrix instructions."""
    if entry.get("has_type") is False:
        return "no such type"
    if "error" in entry:
        return "does not compile"
    matrix = f", {entry['matrix']} ×" if multiplies(name) else ""
    return f"{entry['registers']}, {entry['shared'] / 1024:.0f} KiB, {entry['occupancy']:.0%}{matrix}"


TEXT = """# What GPUs make of the Triton kernels

Each kernel is launched dry by its real wrapper, at the shapes of Llama-3.2-1B and Llama-3.1-8B, and compiled for four
targets by Triton's own compilers and assemblers; no GPU is needed. A cell says: registers a thread, shared memory a
program, share of a multiprocessor's warps that run at once, and how many matrix instructions its text has (mma on sm_80,
wgmma on sm_90, tcgen05 on sm_100, on these two mma where a program has 16 rows, mfma on gfx942; kernels without a product
have none). No kernel spills.

`make static-gpu-check` compares; `python -m benchmarks.static_gpu --write` makes this page.

{table}
"""
