"""Loops of the compiled C library, as objdump shows them."""

import re
import subprocess
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo_kernels.cpu.compile import variants

Instruction = tuple[int, str, str]
"""Address, name, operands."""


@dataclass(frozen=True)
class Loop:
    """A backward jump and all before it, with no further loop inside but such as only prefetch."""

    variant: str
    function: str
    body: tuple[Instruction, ...]

    def count(self, name: str) -> int:
        return sum(each == name for _, each, _ in self.body)

    def share(self, name: str) -> float:
        """Of its instructions."""
        return self.count(name) / len(self.body)

    @property
    def spills(self) -> list[Instruction]:
        """Vector registers written to the stack, for want of more registers."""
        stack = re.compile(r"%[xyz]mm\d+,[-0-9a-fx]*\(%r[sb]p")
        return [each for each in self.body if each[1].startswith("vmov") and stack.search(each[2])]


def read_loops(library: Path) -> list[Loop]:
    """All innermost loops of the kernels."""
    instructions = list(disassemble(library))
    addresses = [address for address, _, _ in instructions]
    return [
        Loop(variant, function, body)
        for variant, function, first, end in functions(library)
        for body in innermost(instructions[bisect_left(addresses, first) : bisect_left(addresses, end)])
    ]


def disassemble(library: Path) -> Iterator[Instruction]:
    for line in dump(library, "-d", "--no-show-raw-insn"):
        if match := re.match(r" *([0-9a-f]+):\t(\S+) *(.*)", line):
            yield int(match[1], 16), match[2], match[3]


def functions(library: Path) -> Iterator[tuple[str, str, int, int]]:
    """(variant, name, first address, end): variant.c is linked once for each variant, in their order."""
    names, variant = iter(variants("x86_64")), ""
    for line in dump(library, "-t"):
        if " df " in line:
            variant = next(names) if line.endswith("variant.c") else ""
        match = re.match(r"([0-9a-f]+) .* F \.text\s+([0-9a-f]+)\s+([^.\s]+)", line)
        if variant and match:
            yield variant, match[3], int(match[1], 16), int(match[1], 16) + int(match[2], 16)


def innermost(body: list[Instruction]) -> Iterator[tuple[Instruction, ...]]:
    jumps = [
        (int(match[0], 16), at) for at, name, to in body if name[0] == "j" and (match := re.match("[0-9a-f]+", to))
    ]
    loops = [(to, at) for to, at in jumps if body[0][0] <= to <= at and not only_prefetches(body, to, at)]
    for to, at in loops:
        if not any(to <= inner <= end < at or to < inner <= end <= at for inner, end in loops):
            yield tuple(each for each in body if to <= each[0] <= at)


def only_prefetches(body: list[Instruction], first: int, last: int) -> bool:
    names = [name for at, name, _ in body if first <= at <= last]
    return len(names) <= 6 and any(name.startswith("prefetch") for name in names)


def dump(library: Path, *options: str) -> list[str]:
    return subprocess.run(
        ["objdump", *options, library], capture_output=True, text=True, check=True
    ).stdout.splitlines()
