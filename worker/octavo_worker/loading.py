"""Work with a progress bar on a terminal."""

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Show = Callable[[int, int], None]  # (done, in all)


def behind_a_bar(label: str, work: Callable[[Show], T]) -> T:
    """What `work` returns. Silent where stderr is no terminal."""
    if not sys.stderr.isatty():
        return work(lambda done, total: None)
    from rich.console import Console  # here, because it takes a while and few look
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=None)
        return work(lambda done, total: bar.update(task, completed=done, total=total))
