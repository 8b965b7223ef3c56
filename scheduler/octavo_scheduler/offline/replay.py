"""`octavo replay LOG`: the recorded calls again, on a new core, each plan compared with the recorded one.

With `--what-if` the recorded arrivals instead, under other settings and with workers that only take time (see `what_if`).
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.audit import refuse_unpickling

from octavo_scheduler.event_log import EventLog, LogError, Plan, plan_digest
from octavo_scheduler.offline.change import NAMES, Change
from octavo_scheduler.offline.comparison import compare
from octavo_scheduler.offline.rerun import Difference, Moment, moments


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What came of replaying one log."""

    calls: int
    plans: int
    seconds: float
    recorded_seconds: float
    """From the first call of the recording to the last."""
    is_complete: bool
    """Whether the recording was closed in order; if not, all that it has of its last second was replayed."""
    difference: str | None


def replay(log: EventLog) -> Replay:
    """Makes all recorded calls and compares the plans, up to the first that differs. Raises LogError for a damaged line."""
    started = time.perf_counter()
    calls = plans = 0
    first = last = 0.0
    difference = None
    try:
        for calls, moment in enumerate(moments(log), start=1):
            last = moment.entry.now
            first = first if calls > 1 else last
            plans += moment.plan is not None
            _compare(calls, moment, has_tokens=log.header.has_tokens)
    except Difference as found:
        difference = str(found)
    return Replay(
        calls=calls,
        plans=plans,
        seconds=time.perf_counter() - started,
        recorded_seconds=last - first,
        is_complete=log.is_complete,
        difference=difference,
    )


def _compare(number: int, moment: Moment, *, has_tokens: bool) -> None:
    if not isinstance(moment.entry, Plan):
        return
    recorded = moment.entry.digest
    digest = plan_digest(moment.plan, has_tokens=has_tokens) if moment.plan else None
    if digest != recorded:
        step = f"step {moment.plan.step} with digest {digest}" if moment.plan else "no plan"
        was = f"a plan with digest {recorded}" if recorded else "no plan"
        raise Difference(f"call {number}: worker {moment.entry.worker} was given {was}, and now {step}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 all plans equal, 1 one differs, 2 wrong usage or no log."""
    parser = argparse.ArgumentParser(
        prog="octavo replay",
        description="Make the calls of recorded logs again and compare every plan. Prints one line of JSON.",
    )
    parser.add_argument("logs", metavar="LOG", nargs="+", type=Path)
    parser.add_argument(
        "--what-if",
        metavar="NAME=VALUE,…",
        help="simulate the recorded arrivals under other settings: " + ", ".join(NAMES),
    )
    parser.add_argument("--json", action="store_true", help="print a what-if as JSON, not as a table")
    options = parser.parse_args(arguments)
    try:
        if options.what_if is None:
            return _print_replays([EventLog(path) for path in options.logs])
        for path in options.logs:
            comparison = compare(EventLog(path), Change.parse(options.what_if))
            print(json.dumps(comparison.as_dict()) if options.json else comparison.table())
        return 0
    except (LogError, Difference, OSError, ValueError) as error:
        print(f"octavo replay: {error}", file=sys.stderr)
        return 2


def _print_replays(logs: list[EventLog]) -> int:
    replays = [replay(log) for log in logs]
    different = [(log, r.difference) for log, r in zip(logs, replays, strict=True) if r.difference is not None]
    seconds = sum(r.seconds for r in replays)
    figures = {
        "runs": len(replays),
        "equal": len(replays) - len(different),
        "calls": sum(r.calls for r in replays),
        "plans": sum(r.plans for r in replays),
        "complete": sum(r.is_complete for r in replays),
        "seconds": round(seconds, 4),
        "speedup": round(sum(r.recorded_seconds for r in replays) / seconds, 1),
    }
    print(json.dumps(figures))
    for log, difference in different:
        print(f"octavo replay: {log.path}: {difference}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    refuse_unpickling()
    sys.exit(main())
