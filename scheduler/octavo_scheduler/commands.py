"""What a front tells the core, as data: it is done in the loop's thread, in whichever process it was made.

Each is a command of the loop (see `loop.Command`): called with the core and the time, it gives the outputs.
"""

from collections.abc import Callable
from dataclasses import dataclass

from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Masked, Output
from octavo_scheduler.core.request import RequestSpec


@dataclass(frozen=True, slots=True)
class Submit:
    """A request, with the first masks of a constrained one. `label`: what its client calls it."""

    spec: RequestSpec
    label: str
    masks: tuple[Masked, ...] = ()

    def __call__(self, core: Core, now: float) -> list[Output]:
        return [*core.submit(self.spec, now), *(output for mask in self.masks for output in core.apply(mask, now))]


@dataclass(frozen=True, slots=True)
class Abort:
    """A request nobody waits for any more; with `at`, the end of one of its branches."""

    request: str
    at: int | None = None
    branch: int = 0

    def __call__(self, core: Core, now: float) -> list[Output]:
        return core.abort(self.request, now, self.at, self.branch)


@dataclass(frozen=True, slots=True)
class Masks:
    """What may come next in constrained answers."""

    masks: tuple[Masked, ...]

    def __call__(self, core: Core, now: float) -> list[Output]:
        return [output for mask in self.masks for output in core.apply(mask, now)]


FrontCommand = Submit | Abort | Masks
Post = Callable[[FrontCommand], None]
