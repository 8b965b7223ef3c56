"""What a real worker may be ill of: `tests.faults.worker real ILL LIMIT LOG FLAGS…`. Each executed step is a line of LOG."""

import os
from collections.abc import Callable
from pathlib import Path

from octavo_worker.batch import Rows
from octavo_worker.runner import Runner

MARK = 2
"""A prompt that begins with this token makes a worker ill of it."""
MORE_THAN_THERE_IS = 1 << 62
ILLS = ("poison", "short of memory", "broken")


class Ledger:
    """Lines that are on the disk before the next step begins."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, line: str) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


def make_ill(runner: Runner, ill: str, limit: int, ledger: Ledger) -> None:
    """`poison`: a marked row raises. `short of memory`: so does a step of more than `limit` tokens, or with a marked row.
    `broken`: every step fails while there is no file `well` beside the ledger."""
    run_rows: Callable[[Rows], None] = runner.run_rows

    def run(rows: Rows) -> None:
        is_marked = bool((runner.slots.history[rows.slot, 0] == MARK).any())
        num_tokens = int(rows.num_tokens.sum())
        ledger.note(f"{runner.config.worker_id} {num_tokens} tokens{' marked' if is_marked else ''}")
        run_rows(rows)
        if ill == "poison" and is_marked:
            raise TypeError("this prompt does not agree with me")
        if ill == "short of memory" and (is_marked or num_tokens > limit):
            bytearray(MORE_THAN_THERE_IS)
        if ill == "broken" and not ledger.path.with_name("well").exists():
            raise RuntimeError("an illegal memory access was encountered")

    runner.run_rows = run  # type: ignore[method-assign]
