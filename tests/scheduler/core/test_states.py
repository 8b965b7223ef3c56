from collections.abc import Mapping
from enum import Enum
from itertools import product
from typing import Any

import pytest
from octavo_scheduler.core.states import (
    REQUEST_MOVES,
    SEQUENCE_MOVES,
    WORKER_MOVES,
    IllegalMove,
    RequestMove,
    RequestState,
    SequenceMove,
    SequenceState,
    WorkerMove,
    WorkerState,
    move,
)

TABLES: list[tuple[Mapping[Any, Mapping[Any, Any]], type[Enum], type[Enum]]] = [
    (SEQUENCE_MOVES, SequenceState, SequenceMove),
    (REQUEST_MOVES, RequestState, RequestMove),
    (WORKER_MOVES, WorkerState, WorkerMove),
]


@pytest.mark.parametrize(("table", "states", "moves"), TABLES)
def test_each_pair_of_a_table_moves_and_each_missing_pair_raises_with_both_names(
    table: Mapping[Any, Mapping[Any, Any]], states: type[Enum], moves: type[Enum]
) -> None:
    assert set(table) == set(states)
    for state, by in product(states, moves):
        if by in table[state]:
            assert move(table, state, by) is table[state][by]
        else:
            with pytest.raises(IllegalMove, match=f"{state.name}.*{by.name}"):
                move(table, state, by)


def test_every_state_but_the_last_can_end() -> None:
    assert all(
        SequenceMove.FINISH in SEQUENCE_MOVES[state] for state in SequenceState if state is not SequenceState.DONE
    )
    assert not SEQUENCE_MOVES[SequenceState.DONE]
    assert not REQUEST_MOVES[RequestState.ENDED]
    assert not WORKER_MOVES[WorkerState.GONE]
