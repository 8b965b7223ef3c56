"""Keeps the matchers of constrained answers up with what the core commits, and tells the core what may come next.

A thread asks the helper process, once for all that was committed in a step, so that masks of one step come together. What
the helper knows follows from constraints and committed tokens: when it dies, another one is started and told them, one
branch after the other, so that a branch of which helpers die ends alone.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from octavo_scheduler import errors, limits
from octavo_scheduler.commands import Masks, Post
from octavo_scheduler.core.events import Committed, Finished, Masked, Output
from octavo_scheduler.matching.constraint import Constraint
from octavo_scheduler.matching.helper import Helper, HelperLost
from octavo_scheduler.model import ServedModel

log = logging.getLogger("octavo.scheduler")

Branch = tuple[str, int]
"""Of a run."""

MOST_PROVEN = 1024
TOO_LONG = f"it takes more than {limits.TRIAL_SECONDS:g} s or too much memory to compile"
LOST = "it cannot be followed: its helper process died of it"


@dataclass(eq=False, slots=True)
class Matcher:
    """Of a branch. `key`: what it is called in the helper."""

    key: int
    branch: Branch
    constraint: Constraint
    tokens: list[int]


@dataclass(frozen=True, eq=False, slots=True)
class Begin:
    """Follow these branches; `masks` are their first."""

    run: str
    constraint: Constraint
    known: dict[int, list[int]]
    masks: "Future[list[Masked]]"


@dataclass(frozen=True, slots=True)
class End:
    """Follow a run no longer."""

    run: str


Said = Committed | Finished
Job = Begin | End | list[Said]


class Matchers:
    """Of one scheduler. `begin` and `end` are called by the event loop, `follow` by the core's thread."""

    def __init__(self, model: ServedModel, post: Post) -> None:
        self._post = post
        self.trial, self.helper = Helper(model), Helper(model)
        self._runs: set[str] = set()
        self._proven: OrderedDict[Constraint, None] = OrderedDict()
        self._matchers: dict[Branch, Matcher] = {}
        self._keys = count()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._trials = ThreadPoolExecutor(1, thread_name_prefix="trial")
        self._thread: Thread | None = None

    async def begin(self, run: str, constraint: Constraint, known: dict[int, list[int]]) -> list[Masked]:
        """Follow the branches of a run, of which so many tokens are known. Their first masks.

        Raises InvalidRequest for a constraint that does not compile, or that the known tokens do not keep to.
        """
        await asyncio.get_running_loop().run_in_executor(self._trials, self._prove, constraint)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="matching", daemon=True)
            self._thread.start()
        begin = Begin(run, constraint, known, Future())
        self._runs.add(run)
        self._jobs.put(begin)
        try:
            return await asyncio.wrap_future(begin.masks)
        except BaseException:
            self.end(run)
            raise

    def follow(self, outputs: Sequence[Output]) -> None:
        """The core has said this."""
        if self._runs:
            said = [o for o in outputs if isinstance(o, Committed | Finished) and o.request in self._runs]
            if said:
                self._jobs.put(said)

    def end(self, run: str) -> None:
        """Nobody waits for this run any more. One that was never begun is ignored."""
        if run in self._runs:
            self._runs.discard(run)
            self._jobs.put(End(run))

    def close(self) -> None:
        self._jobs.put(None)
        self.trial.close()
        self.helper.close()
        self._trials.shutdown(wait=False)

    # trials -----------------------------------------------------------------------------------------------------------

    def _prove(self, constraint: Constraint) -> None:
        """Compiles a constraint where nothing is lost with the process. Raises InvalidRequest."""
        if constraint not in self._proven:
            asked = {"drop": [0], "begin": [[0, constraint.kind, constraint.text, []]]}
            self.trial.bury()
            try:
                answer, _ = self.trial.ask(asked, limits.TRIAL_SECONDS)
            except HelperLost as error:
                raise _refusal(constraint, TOO_LONG) from error
            for _, sentence in answer["errors"]:
                raise _refusal(constraint, sentence)
            self._proven[constraint] = None
            if len(self._proven) > MOST_PROVEN:
                self._proven.popitem(last=False)

    # the thread -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            while job is not None:
                try:
                    job = self._jobs.get_nowait()
                except Empty:
                    break
                if job is not None:
                    jobs.append(job)
            self._turn(jobs)
            if job is None:
                return

    def _turn(self, jobs: list[Job]) -> None:
        """Asks for the masks of all that is new."""
        dropped: list[int] = []
        begun: list[Matcher] = []
        stepped: dict[Matcher, int] = {}
        begins: list[Begin] = []
        for job in jobs:
            match job:
                case Begin():
                    if job.masks.set_running_or_notify_cancel():
                        begins.append(job)
                        begun += [self._add(job, branch) for branch in job.known]
                case End():
                    dropped += self._drop(branch for branch in list(self._matchers) if branch[0] == job.run)
                case _:
                    dropped += self._drop((o.request, o.branch) for o in job if isinstance(o, Finished))
                    self._say(job, stepped)
        live = self._matchers.values()
        asked = {
            "drop": dropped,
            "begin": [_begin(matcher) for matcher in begun if matcher in live],
            "step": [[m.key, m.tokens[first:]] for m, first in stepped.items() if m in live and m not in begun],
        }
        self._tell(begins, self._ask(asked))

    def _add(self, begin: Begin, branch: int) -> Matcher:
        matcher = Matcher(next(self._keys), (begin.run, branch), begin.constraint, list(begin.known[branch]))
        self._matchers[matcher.branch] = matcher
        return matcher

    def _drop(self, branches: Any) -> list[int]:
        gone = [self._matchers.pop(branch, None) for branch in branches]
        return [matcher.key for matcher in gone if matcher is not None]

    def _say(self, outputs: list[Said], stepped: dict[Matcher, int]) -> None:
        """Notes tokens of branches that go on."""
        for output in outputs:
            if isinstance(output, Committed) and (m := self._matchers.get((output.request, output.branch))):
                stepped.setdefault(m, len(m.tokens))
                m.tokens.append(output.token)

    def _ask(self, asked: dict[str, Any]) -> dict[Branch, bytes | str]:
        """Masks, and sentences where there can be none."""
        if not (asked["begin"] or asked["step"] or asked["drop"]):
            return {}
        try:
            return self._read(*self.helper.ask(asked, limits.MATCHING_SECONDS))
        except HelperLost as error:
            log.error("the process that follows constraints is lost (%s); it is started again", error)
            return self._rebuild()

    def _rebuild(self) -> dict[Branch, bytes | str]:
        found: dict[Branch, bytes | str] = {}
        rest = list(self._matchers.values())
        while rest:
            try:
                for matcher in list(rest):
                    found |= self._read(*self.helper.ask({"begin": [_begin(matcher)]}, limits.MATCHING_SECONDS))
                    rest.remove(matcher)
            except HelperLost:
                del self._matchers[rest[0].branch]
                found[rest[0].branch] = LOST
                rest = list(self._matchers.values())
        return found

    def _read(self, head: dict[str, Any], body: bytes) -> dict[Branch, bytes | str]:
        by_key = {matcher.key: matcher for matcher in self._matchers.values()}
        found: dict[Branch, bytes | str] = {}
        size = len(body) // (len(head["masks"]) or 1)
        for place, key in enumerate(head["masks"]):
            found[by_key[key].branch] = body[place * size : (place + 1) * size]
        for key, sentence in head["errors"]:
            found[by_key[key].branch] = sentence
            del self._matchers[by_key[key].branch]
        return found

    def _tell(self, begins: list[Begin], found: dict[Branch, bytes | str]) -> None:
        """First masks to who asked for them, all others to the core."""
        for begin in begins:
            own = {branch: found.pop((begin.run, branch), None) for branch in begin.known}
            sentences = [value for value in own.values() if isinstance(value, str)]
            if sentences:
                begin.masks.set_exception(_refusal(begin.constraint, sentences[0]))
            else:
                begin.masks.set_result(
                    [
                        Masked(begin.run, branch, len(begin.known[branch]), mask)
                        for branch, mask in own.items()
                        if isinstance(mask, bytes)
                    ]
                )
        masked = tuple(self._masked(branch, value) for branch, value in found.items())
        if masked:
            self._post(Masks(masked))

    def _masked(self, branch: Branch, value: bytes | str) -> Masked:
        if isinstance(value, bytes):
            return Masked(*branch, len(self._matchers[branch].tokens), value)
        log.warning("request %s cannot go on: %s", branch[0], value)
        return Masked(*branch, 0)


def _refusal(constraint: Constraint, sentence: str) -> errors.InvalidRequest:
    return errors.InvalidRequest(
        f"constraint.{constraint.kind}: {sentence}", field=f"options.constraint.{constraint.kind}"
    )


def _begin(matcher: Matcher) -> list[object]:
    return [matcher.key, matcher.constraint.kind, matcher.constraint.text, matcher.tokens]
