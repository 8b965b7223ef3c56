"""What a run has seen: faults, and which kinds of event met which states."""

from collections import Counter

STEP_FAULTS = (
    "step failed",
    "step failed half done",
    "step out of memory",
    "plan called invalid",
    "result malformed",
    "logits no numbers",
)
EARLY_RESULT = "result before its masks"
WORLD_FAULTS = (
    EARLY_RESULT,
    "connection reset",
    "connection dark",
    "connection clogged",
    "worker killed",
    "worker left",
    "worker frozen briefly",
    "worker frozen long",
    "worker drained",
    "worker joined late",
    "worker restarted at once",
    "twin refused",
    "other weights refused",
    "other protocol refused",
    "absurd pool refused",
    "result of an old epoch",
    "result from a stranger",
    "garbage from a member",
    "garbage from a stranger",
    "scheduler paused briefly",
    "scheduler paused long",
    "prefixes flushed",
    "prefix pinned",
    "prefix unpinned",
    "unknown request aborted",
    "request aborted twice",
    "live id submitted again",
    "cancel storm",
    "everything suspended",
)
FAULTS = (
    *(
        f"frame {kind} {way}"
        for kind in ("lost", "delayed", "duplicated", "reordered", "garbled")
        for way in ("up", "down")
    ),
    *WORLD_FAULTS,
    *STEP_FAULTS,
    "poisonous request",
    "request that memory is too small for",
)
"""Every kind of fault. The JSON line shows how often each took place."""

EVENTS_OF_SEQUENCES = {
    "abort": ("WAITING", "RUNNING", "SWAPPED"),
    "abort at": ("WAITING", "RUNNING", "SWAPPED"),
    "deadline": ("WAITING", "RUNNING", "SWAPPED"),
    "plan": ("WAITING", "RUNNING", "SWAPPED", "DONE"),
    "step done": ("RUNNING", "SWAPPED", "DONE"),
    "nack": ("WAITING", "RUNNING", "SWAPPED", "DONE"),
    "lost": ("WAITING", "RUNNING", "SWAPPED", "DONE"),
    "joined": ("WAITING",),
    "drain": ("RUNNING", "SWAPPED", "DONE"),
    "rates": ("RUNNING", "SWAPPED", "DONE"),
    "flush": ("WAITING", "RUNNING", "SWAPPED", "DONE"),
    "masked": ("WAITING", "RUNNING", "SWAPPED"),
}
"""An event meets every sequence of its request, or of its worker, or that waits. DONE: rows of ended ones in flight."""

EVENTS_OF_WORKERS = {
    "plan": ("READY", "DRAINING"),
    "step done": ("READY", "DRAINING"),
    "nack": ("READY", "DRAINING"),
    "lost": ("READY", "DRAINING", "GONE"),
    "joined": ("GONE",),
    "drain": ("READY",),
    "rates": ("READY", "DRAINING"),
    "flush": ("READY", "DRAINING"),
}
"""GONE: the event names a worker that the core does not have (any more). The loop loses a member before another of its name
joins, and drops the words of those that are no members, so that other pairs cannot come about."""

PLANS = (
    "pages swapped out",
    "pages swapped in",
    "evicted page moved down",
    "prefix brought up",
    "page copied before it is written",
    "branches forked",
    "prefix found",
    "plan is full",
    "suspect alone",
    "log-probabilities asked for",
    "row with a mask",
    "masked rows beside free ones",
    "running sequence let go to another worker",
    "swapped sequence let go to another worker",
    "masks follow",
    "masks follow for rows that have ended",
)
"""What plans may hold."""


class Coverage:
    """Counters that can be added up over seeds."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        for fault in FAULTS:
            self.counts[f"fault: {fault}"] = 0
        for plan in PLANS:
            self.counts[f"plan: {plan}"] = 0
        for what, table in (("sequence", EVENTS_OF_SEQUENCES), ("worker", EVENTS_OF_WORKERS)):
            for event, states in table.items():
                for state in states:
                    self.counts[f"{what}: {state}, {event}"] = 0

    def fault(self, kind: str) -> None:
        self.counts[f"fault: {kind}"] += 1

    def seen(self, plan: str) -> None:
        self.counts[f"plan: {plan}"] += 1

    def sequence(self, state: str, event: str) -> None:
        self.counts[f"sequence: {state}, {event}"] += 1

    def worker(self, state: str, event: str) -> None:
        self.counts[f"worker: {state}, {event}"] += 1
