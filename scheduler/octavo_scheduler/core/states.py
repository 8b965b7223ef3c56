"""Three state tables, written as literals and looked up in one place.

A sequence waits, runs in a worker's device pages, or lies swapped out in that worker's host pages; it may be sent back to
waiting (drop) and ends once. A request is queued until a first row of it is planned. A worker takes work when ready.

A pair that is missing from a table is illegal: `move` raises with both names and nothing changes.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeVar


class SequenceState(Enum):
    WAITING = auto()
    RUNNING = auto()
    SWAPPED = auto()
    DONE = auto()


class SequenceMove(Enum):
    ADMIT = auto()
    SWAP_OUT = auto()
    SWAP_IN = auto()
    DROP = auto()
    FINISH = auto()


class RequestState(Enum):
    QUEUED = auto()
    ACTIVE = auto()
    ENDED = auto()


class RequestMove(Enum):
    START = auto()
    END = auto()


class WorkerState(Enum):
    JOINING = auto()
    READY = auto()
    DRAINING = auto()
    GONE = auto()


class WorkerMove(Enum):
    WELCOME = auto()
    DRAIN = auto()
    RESUME = auto()
    LOSE = auto()


SEQUENCE_MOVES: Mapping[SequenceState, Mapping[SequenceMove, SequenceState]] = {
    SequenceState.WAITING: {
        SequenceMove.ADMIT: SequenceState.RUNNING,
        SequenceMove.FINISH: SequenceState.DONE,
    },
    SequenceState.RUNNING: {
        SequenceMove.SWAP_OUT: SequenceState.SWAPPED,
        SequenceMove.DROP: SequenceState.WAITING,
        SequenceMove.FINISH: SequenceState.DONE,
    },
    SequenceState.SWAPPED: {
        SequenceMove.SWAP_IN: SequenceState.RUNNING,
        SequenceMove.DROP: SequenceState.WAITING,
        SequenceMove.FINISH: SequenceState.DONE,
    },
    SequenceState.DONE: {},
}

REQUEST_MOVES: Mapping[RequestState, Mapping[RequestMove, RequestState]] = {
    RequestState.QUEUED: {RequestMove.START: RequestState.ACTIVE, RequestMove.END: RequestState.ENDED},
    RequestState.ACTIVE: {RequestMove.END: RequestState.ENDED},
    RequestState.ENDED: {},
}

WORKER_MOVES: Mapping[WorkerState, Mapping[WorkerMove, WorkerState]] = {
    WorkerState.JOINING: {WorkerMove.WELCOME: WorkerState.READY, WorkerMove.LOSE: WorkerState.GONE},
    WorkerState.READY: {WorkerMove.DRAIN: WorkerState.DRAINING, WorkerMove.LOSE: WorkerState.GONE},
    WorkerState.DRAINING: {WorkerMove.RESUME: WorkerState.READY, WorkerMove.LOSE: WorkerState.GONE},
    WorkerState.GONE: {},
}


class IllegalMove(Exception):
    """A state was asked for a move that its table does not have."""

    def __init__(self, state: Enum, move: Enum) -> None:
        super().__init__(f"{type(state).__name__}.{state.name} has no move {move.name}")
        self.state = state
        self.move = move


S = TypeVar("S", bound=Enum)
M = TypeVar("M", bound=Enum)


def move(table: Mapping[S, Mapping[M, S]], state: S, by: M) -> S:
    """The state after `by`; raises IllegalMove when the table has no such pair."""
    try:
        return table[state][by]
    except KeyError:
        raise IllegalMove(state, by) from None
