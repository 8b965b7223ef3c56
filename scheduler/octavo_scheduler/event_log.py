"""A log of all that a core was told and asked, in the order in which it was.

The file is a gzip stream of lines in JSON; `zcat` shows it. The first line is the header, every other line one call:

    {"octavo_log": 1, "has_tokens": false, "settings": {…}}
    ["submit", now, {request}]
    ["abort",  now, id, at, branch]             `at` may be null
    ["plan",   now, worker, digest]             digest of the plan that was made, null for none
    ["apply",  now, "StepDone", {event}]

`now` is in monotonic seconds. Records stand as their fields (see `fields`). The digest is BLAKE2b, 8 bytes, over the encoded
plan with epoch (0, 0); where `has_tokens` is false, the token ids of new slots count as 0 in it, and their biases as none.
Masks are left out everywhere: they are large, and follow from the tokens.
"""

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, get_args

from octavo_scheduler import wire
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Event
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import NO_BIASES, RequestSpec
from octavo_scheduler.fields import UnknownField, from_plain, to_plain

VERSION = 1
FLUSH_SECONDS = 1.0
"""What a crash of the process may lose."""

_GZIP = zlib.MAX_WBITS | 16
_CHUNK = 1 << 16
_MOST_UNPACKED = 1 << 20
"""Bytes that are unpacked at once."""
LONGEST_LINE = 1 << 27
"""Bytes. The longest prompt that a scheduler lets in makes a shorter one."""
_NO_EPOCH = wire.Epoch(0, 0)
_EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}


class LogError(Exception):
    """A file that is no log, or one that cannot be understood; the sentence says why."""


class Submit(NamedTuple):
    now: float
    spec: RequestSpec


class Abort(NamedTuple):
    now: float
    request: str
    at: int | None
    branch: int


class Plan(NamedTuple):
    now: float
    worker: str
    digest: str | None


class Apply(NamedTuple):
    now: float
    event: Event


Entry = Submit | Abort | Plan | Apply


@dataclass(frozen=True, kw_only=True)
class Header:
    """How the recorded core was set, and whether the log has token ids or pseudonyms."""

    settings: Settings
    has_tokens: bool
    octavo_log: int = -1
    """Version of the format; written always, since no version is the default."""


def plan_digest(plan: StepPlan, *, has_tokens: bool) -> str:
    """What a log remembers of a plan."""
    if plan.new_slots and not has_tokens:
        hidden = [replace(new, tokens=(0,) * len(new.tokens), biases=NO_BIASES) for new in plan.new_slots]
        plan = replace(plan, new_slots=hidden)
    if plan.masks:
        plan = replace(plan, masks=None)
    return blake2b(wire.encode_plan(_NO_EPOCH, plan), digest_size=8).hexdigest()


class LogWriter:
    """A new file, readable by its owner alone. Raises OSError when it cannot be made (it exists) or written."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        self._stream = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
        self._flushed_at = float("-inf")
        self._line(to_plain(header))

    def write(self, entry: Entry) -> None:
        self._line(_to_line(entry))

    def flush(self, now: float) -> None:
        """Hands what was written to the system, once a second."""
        if now - self._flushed_at >= FLUSH_SECONDS:
            self._flushed_at = now
            self._file.write(self._stream.flush(zlib.Z_SYNC_FLUSH))
            self._file.flush()

    def close(self) -> None:
        with self._file:
            self._file.write(self._stream.flush())

    def _line(self, line: Any) -> None:
        text = json.dumps(line, separators=(",", ":"))
        self._file.write(self._stream.compress(text.encode() + b"\n"))


class EventLog:
    """A log that was written. Iterating gives its entries, up to the last whole one of a log that breaks off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_complete = False
        """After iteration: whether the recording was closed in order."""
        self.header = self._header()

    def __iter__(self) -> Iterator[Entry]:
        lines = self._lines()
        next(lines)
        for number, line in enumerate(lines, start=2):
            try:
                yield _to_entry(json.loads(line))
            except (ValueError, TypeError, KeyError, IndexError, RecursionError, UnknownField) as error:
                raise LogError(f"{self.path}: line {number} is no entry of a log: {error}") from error

    def _header(self) -> Header:
        try:
            values = json.loads(next(self._lines(), b""))
            version = values["octavo_log"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise LogError(f"{self.path} is not a log of octavo") from error
        if version != VERSION:
            raise LogError(f"{self.path} has format {version}; this version reads {VERSION}")
        try:
            return from_plain(Header, values)
        except (ValueError, TypeError, UnknownField) as error:
            raise LogError(
                f"{self.path} was recorded under settings that this version does not know: {error}"
            ) from error

    def _lines(self) -> Iterator[bytes]:
        stream = zlib.decompressobj(_GZIP)
        rest = b""
        with self.path.open("rb") as file:
            while not stream.eof and (chunk := stream.unconsumed_tail or file.read(_CHUNK)):
                try:
                    *lines, rest = (rest + stream.decompress(chunk, _MOST_UNPACKED)).split(b"\n")
                except zlib.error:
                    break
                yield from lines
                if len(rest) > LONGEST_LINE:
                    raise LogError(f"{self.path} has a line of more than {LONGEST_LINE} bytes")
        self.is_complete = stream.eof and not rest


def _to_line(entry: Entry) -> list[Any]:
    match entry:
        case Submit():
            return ["submit", entry.now, to_plain(entry.spec)]
        case Abort():
            return ["abort", entry.now, entry.request, entry.at, entry.branch]
        case Plan():
            return ["plan", entry.now, entry.worker, entry.digest]
        case Apply():
            return ["apply", entry.now, type(entry.event).__name__, to_plain(entry.event)]


def _to_entry(line: list[Any]) -> Entry:
    match line:
        case ["submit", now, spec]:
            return Submit(float(now), from_plain(RequestSpec, spec))
        case ["abort", now, request, at, branch]:
            return Abort(float(now), request, at, branch)
        case ["plan", now, worker, digest]:
            return Plan(float(now), worker, digest)
        case ["apply", now, kind, event]:
            return Apply(float(now), from_plain(_EVENTS[kind], event))
    raise ValueError(f"{line[0]} with {len(line) - 1} values")
