"""A captured step that is cut where ranks exchange results: [tape, exchange, tape, exchange, …, tape].

The kernels capture what lies between two exchanges as they capture a whole step. To know where the cuts are, the step is
called once with functions that write down what was called.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

from octavo_kernels.ops import Ops, Replay, Step

EXCHANGES = ("all_reduce", "all_gather")
MEMORY = ("new_buffer", "share", "changed", "copied", "fetch", "new_pool", "new_host_pool", "memory", "pack", "unpack")
NOT_RECORDED = (*MEMORY, "capture", "move_pages", "zero_pages", "fence", "swap_seconds", "on_rows")
Call: TypeAlias = tuple[bool, Replay]  # (whether it is an exchange, what runs it)


def in_segments(ops: Ops) -> Ops:
    """The same kernels; what they capture is cut at exchanges."""
    recorder = Recorder(ops)
    names = [each.name for each in fields(ops) if callable(getattr(ops, each.name)) and each.name not in NOT_RECORDED]
    noting: dict[str, Any] = {name: recorder.noting(name) for name in names}
    return replace(ops, capture=recorder.capture, **noting)


class Recorder:
    """Writes down calls while it captures, and lets them through at other times."""

    def __init__(self, ops: Ops) -> None:
        self.ops = ops
        self.calls: list[Call] | None = None

    def noting(self, name: str) -> Callable[..., None]:
        """The operation of that name."""
        function: Callable[..., None] = getattr(self.ops, name)

        def operation(*arguments: object, **named: object) -> None:
            if self.calls is None:
                function(*arguments, **named)
            else:
                self.calls.append((name in EXCHANGES, partial(function, *arguments, **named)))

        return operation

    def capture(self, step: Step, body: Callable[[], None]) -> Replay:
        """Call `body` once without running anything; the result runs it segment by segment."""
        calls: list[Call] = []
        self.calls = calls
        try:
            body()
        finally:
            self.calls = None
        runs = [(is_exchange, [call for _, call in run]) for is_exchange, run in groupby(calls, lambda call: call[0])]
        segments = [partial(run_all, run) if is_exchange else self.segment(step, run) for is_exchange, run in runs]
        return partial(run_all, segments)

    def segment(self, step: Step, calls: list[Replay]) -> Replay:
        return self.ops.capture(step, partial(run_all, calls))


def run_all(calls: list[Replay]) -> None:
    for call in calls:
        call()
