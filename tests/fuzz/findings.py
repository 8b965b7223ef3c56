"""What came of some cases."""

from dataclasses import dataclass, field

MOST_QUOTED = 10


@dataclass
class Findings:
    """`accepted` counts input that was still good after it was changed, or good enough: a fuzzer whose every case is
    refused at the door tests the door only."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    crashes: int = 0
    state_changes: int = 0
    problems: list[str] = field(default_factory=list)

    def crash(self, case: int, error: BaseException) -> None:
        """Something was raised that nobody had foreseen."""
        self.crashes += 1
        self.note(case, f"{type(error).__name__}: {error}")

    def state_change(self, case: int, what: str) -> None:
        """Refused input changed something, or accepted input broke a law."""
        self.state_changes += 1
        self.note(case, what)

    def note(self, case: int, what: str) -> None:
        if len(self.problems) < MOST_QUOTED:
            self.problems.append(f"case {case}: {what}"[:500])
