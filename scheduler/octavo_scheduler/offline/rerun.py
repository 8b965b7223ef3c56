"""The recorded calls, made again on a new core."""

from collections.abc import Iterator
from typing import NamedTuple

from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Output
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.event_log import Abort, Apply, Entry, EventLog, Plan, Submit


class Moment(NamedTuple):
    """One recorded call, made again: the core after it, and what it returned."""

    entry: Entry
    core: Core
    outputs: list[Output]
    plan: StepPlan | None


class Difference(Exception):
    """A replay did not go as the recording; the sentence names the first call that differs."""


def moments(log: EventLog) -> Iterator[Moment]:
    """The recorded calls in order, made on a core with the recorded settings. Raises Difference for one that fails."""
    core = Core(log.header.settings)
    for number, entry in enumerate(log, start=1):
        outputs: list[Output] = []
        plan = None
        try:
            match entry:
                case Submit():
                    outputs = core.submit(entry.spec, entry.now)
                case Abort():
                    outputs = core.abort(entry.request, entry.now, entry.at, entry.branch)
                case Apply():
                    outputs = core.apply(entry.event, entry.now)
                case Plan():
                    plan = core.plan(entry.worker, entry.now)
        except Exception as error:
            raise Difference(f"call {number} ({type(entry).__name__.lower()}) raises {error!r}") from error
        yield Moment(entry, core, outputs, plan)
