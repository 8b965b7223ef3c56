"""A core that writes down what it is told and asked.

The verbs only take notes; `write` turns them into lines, when the plans are on their way and the workers compute.
A recording begins with the scheduler: without the state it found, nothing recorded later could be replayed.
"""

import logging
import secrets
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from octavo_scheduler.core import Core, Settings
from octavo_scheduler.core.events import NO_TOKEN, Event, Masked, Output, StepDone
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.core.request import Sequence as Branch
from octavo_scheduler.core.states import SequenceState
from octavo_scheduler.event_log import VERSION, Abort, Apply, Entry, Header, LogWriter, Plan, Submit, plan_digest
from octavo_scheduler.pseudonyms import Pseudonyms

log = logging.getLogger("octavo.scheduler")

SECRET_BYTES = 32

Owners = list[Branch | None] | None
"""Of the tokens of a result; None for what is no result."""


class Recorder(Core):
    """The same four verbs. Raises OSError when the file cannot be made; later the service matters more than its log."""

    def __init__(self, settings: Settings, path: Path, *, has_tokens: bool = False) -> None:
        super().__init__(settings)
        self._has_tokens = has_tokens
        self._pseudonyms = Pseudonyms(secrets.token_bytes(SECRET_BYTES))
        self._notes: list[tuple[Entry, Owners]] = []
        known = settings if has_tokens else self._pseudonyms.settings(settings)
        header = Header(octavo_log=VERSION, settings=known, has_tokens=has_tokens)
        self._file: LogWriter | None = LogWriter(path, header)

    def submit(self, spec: RequestSpec, now: float) -> list[Output]:
        if spec.id not in self.requests:  # else it raises, and nothing has happened
            self._note(Submit(now, spec))
        return super().submit(spec, now)

    def abort(self, request_id: str, now: float, at: int | None = None, branch: int = 0) -> list[Output]:
        self._note(Abort(now, request_id, at, branch))
        return super().abort(request_id, now, at, branch)

    def plan(self, worker_id: str, now: float) -> StepPlan | None:
        self._note(Plan(now, worker_id, None))
        plan = super().plan(worker_id, now)
        if plan is not None and self._file is not None:
            digest = plan_digest(plan, has_tokens=self._has_tokens)
            self._notes[-1] = (Plan(now, worker_id, digest), None)
        return plan

    def apply(self, event: Event, now: float) -> list[Output]:
        owners = self._owners(event) if isinstance(event, StepDone) and not self._has_tokens else None
        self._note(Apply(now, _without_mask(event)), owners)
        return super().apply(event, now)

    def write(self) -> None:
        """Writes what was noted. When that fails, the recording ends with what could be written, and a line in the log."""
        notes, self._notes = self._notes, []
        if self._file is None or not notes:
            return
        try:
            for entry, owners in notes:
                self._file.write(entry if self._has_tokens else self._hidden(entry, owners))
            self._file.flush(notes[-1][0].now)
        except OSError as error:
            self._give_up(error)
        if len(self._pseudonyms) > 2 * len(self.requests) + 64:
            self._pseudonyms.forget(self.requests)

    def close(self) -> None:
        """Writes what is left. Nothing is recorded afterwards."""
        self.write()
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._give_up(error)
            else:
                self._file = None

    def discard(self) -> None:
        """Removes the log: nothing was to be recorded after all."""
        if self._file is not None:
            with suppress(OSError):  # of a full disk; what could not be started is worth a sentence of its own
                self._file.close()
            self._file.path.unlink()
            self._file = None

    def _give_up(self, error: OSError) -> None:
        assert self._file is not None, "only a file can fail"
        log.error("the recording ends here: %s cannot be written: %s", self._file.path, error.strerror)
        with suppress(OSError):
            self._file.close()
        self._file = None

    def _note(self, entry: Entry, owners: Owners = None) -> None:
        if self._file is not None:
            self._notes.append((entry, owners))

    def _hidden(self, entry: Entry, owners: Owners) -> Entry:
        match entry:
            case Submit():
                return entry._replace(spec=self._pseudonyms.spec(entry.spec))
            case Apply():
                return entry._replace(event=self._pseudonyms.event(entry.event, owners))
        return entry

    def _owners(self, done: StepDone) -> Owners:
        """Whose each token is: None for one that comes too late. None for all where the core will not take them."""
        worker, tokens = self.workers.get(done.worker), done.tokens
        if worker is None or not worker.in_flight or worker.in_flight[0].step != done.step:
            return None
        owners = token_owners(worker.in_flight[0])
        is_known = not tokens or NO_TOKEN <= min(tokens) <= max(tokens) < worker.joined.vocab_size
        if not is_known or len(owners) != len(tokens):
            return None
        return [None if owner.state is SequenceState.DONE else owner for owner in owners]


def _without_mask(event: Event) -> Event:
    return replace(event, mask=b"") if isinstance(event, Masked) and event.mask else event


def token_owners(plan: StepPlan) -> list[Branch]:
    """The branch that each token of the plan's result belongs to, in order."""
    if not plan.forks:
        return [branch for branch, samples in zip(plan.rows, plan.row_samples, strict=True) if samples]
    forks = iter(plan.forks)
    sampled = [(branch, samples) for branch, samples in zip(plan.rows, plan.row_samples, strict=True) if samples]
    return [
        owner
        for branch, samples in sampled
        for owner in (branch, *(fork.sequence for fork in islice(forks, samples - 1)))
    ]
