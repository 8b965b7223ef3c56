"""Records to JSON values and back."""

import json
from dataclasses import dataclass, field, fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Event, Joined, StepDone
from octavo_scheduler.core.request import FinishReason, RequestSpec, Sampling
from octavo_scheduler.fields import UnknownField, from_plain, to_plain

TOKENS = st.lists(st.integers(-(1 << 31), (1 << 31) - 1)).map(tuple)


def records(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Any record of a kind, tokens within what a column holds."""
    given_fields = {f.name: TOKENS for f in fields(kind) if f.name in ("tokens", "prompt")}
    return st.builds(kind, **given_fields)


@pytest.mark.parametrize("kind", [*get_args(Event), RequestSpec, Sampling], ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_record_comes_back_equal_through_json(kind: type[Any], data: st.DataObject) -> None:
    record = data.draw(records(kind))
    again = from_plain(kind, json.loads(json.dumps(to_plain(record))))
    assert repr(again) == repr(record)  # equal, not-a-number and minus zero too


@dataclass(frozen=True)
class Nested:
    reason: FinishReason
    sampling: Sampling
    weights: tuple[tuple[str, float], ...] = ()
    shares: dict[str, float] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    digest: bytes | None = None


def test_records_in_records_enums_pairs_and_mappings_come_back() -> None:
    record = Nested(FinishReason.STOP, Sampling(seed=3), (("a", 1.5),), {"b": 2.0}, frozenset({"y", "x"}), b"\0\xff")
    assert from_plain(Nested, json.loads(json.dumps(to_plain(record)))) == record


def test_defaults_are_left_out() -> None:
    assert to_plain(Settings()) == {}
    assert to_plain(Settings(max_chunk=7)) == {"max_chunk": 7}


def test_a_field_of_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownField, match="Settings has no field colour, size"):
        from_plain(Settings, {"size": 1, "colour": "red"})


def test_a_token_column_that_is_none_is_refused() -> None:
    for text in ("?", "AAA="):
        with pytest.raises(ValueError, match=r"base64|bytes"):
            from_plain(StepDone, {"worker": "w", "step": 1, "tokens": text})


def test_a_record_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(TypeError, match="page_size"):
        from_plain(Joined, {"worker": "w"})
