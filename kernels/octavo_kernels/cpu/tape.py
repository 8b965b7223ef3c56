"""Operations run at once, or are put on a tape: one call of C replays each stretch of them between actions in Python."""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, cast, pointer

from octavo_kernels.cpu.library import OPERATIONS, Entry, load
from octavo_kernels.ops import Replay, Step

OPERATION = {name: number for number, name in enumerate(OPERATIONS)}


class Team:
    """Threads of the library, asleep while no tape runs. Raises MemoryError when they cannot be started."""

    def __init__(self, threads: int, variant: str) -> None:
        self.library = load()
        self.handle = self.library.octavo_team_new(threads, variant.encode())
        if not self.handle:
            raise MemoryError(f"{threads} threads cannot be started, or there are no such kernels here: {variant}")
        self.threads, self.variant = threads, variant
        self.recording: Tape | None = None

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.octavo_team_free(self.handle)

    def do(self, operation: str, arguments: ctypes.Structure, *keep: object) -> None:
        """Run an operation now, or record it. `keep`: what must live as long as the tape."""
        if self.recording is not None:
            self.recording.add(operation, arguments, keep)
            return
        entry = Entry(OPERATION[operation], ctypes.addressof(arguments))
        self.library.octavo_run(self.handle, pointer(entry), 1)

    def call(self, action: Replay) -> None:
        """Run an action now, or cut the tape here, so that it runs between two pieces each time."""
        if self.recording is not None:
            self.recording.cut(action)
        else:
            action()

    def capture(self, step: Step, body: Callable[[], None]) -> Replay:
        """Call `body` once without running anything; the result runs all that it asked for, in order."""
        self.recording = tape = Tape()
        try:
            body()
        finally:
            self.recording = None
        parts = [self.runs(part, tape) if isinstance(part, list) else part for part in tape.parts if part != []]
        if len(parts) == 1:
            return parts[0]

        def replay() -> None:
            for part in parts:
                part()

        return replay

    def runs(self, piece: list[Entry], tape: "Tape") -> Replay:
        """What runs a piece of a tape in one call."""
        entries = (Entry * len(piece))(*piece)
        first, count = cast(entries, POINTER(Entry)), len(entries)

        def replay(keep: tuple[object, ...] = (self, tape, entries)) -> None:
            self.library.octavo_run(self.handle, first, count)

        return replay


class Tape:
    """Pieces, which are operations one after the other, actions between them, and everything that entries point to."""

    def __init__(self) -> None:
        self.piece: list[Entry] = []
        self.parts: list[list[Entry] | Replay] = [self.piece]
        self.keep: list[object] = []

    def add(self, operation: str, arguments: ctypes.Structure, keep: tuple[object, ...]) -> None:
        self.piece.append(Entry(OPERATION[operation], ctypes.addressof(arguments)))
        self.keep.append((arguments, keep))

    def cut(self, action: Replay) -> None:
        """End the piece, and begin another behind the action."""
        self.piece = []
        self.parts += [action, self.piece]
