"""tritonclient, which knows KServe's protocol and Triton's stream."""

import json
from typing import Any

import pytest

from tests.foreign.conftest import PROMPT, Note, Server
from tests.foreign.environments import HERE, clean_environment, python_environment, run
from tests.foreign.test_languages import until_idle

pytestmark = pytest.mark.on_demand

TRITON = "tritonclient[grpc]==2.73.0"


@pytest.fixture(scope="module")
def cancelled_before(server: Server) -> int:
    return server.status().counters.cancelled


@pytest.fixture(scope="module")
def asked(server: Server, cancelled_before: int) -> dict[str, Any]:
    """What tritonclient got, all of it in one run."""
    programs = python_environment("triton", TRITON)
    words = run(
        [programs / "python", HERE / "triton" / "ask.py", server.address, server.status().model, PROMPT],
        env=clean_environment(),
    )
    answers: dict[str, Any] = json.loads(words)
    return answers


def test_a_stream_makes_the_whole_answer(asked: dict[str, Any], expected: str, note: Note) -> None:
    assert asked["ready"]
    assert asked["inputs"] == ["text_input"]
    assert asked["whole"] == asked["stream"]["text"] == expected
    assert asked["stream"]["pieces"] > 2
    note("tritonclient", asked["version"], "text")


def test_a_refusal_says_why_whole_and_in_a_stream(asked: dict[str, Any], note: Note) -> None:
    assert asked["refused"].endswith("INVALID_ARGUMENT: the prompt is empty: it needs at least one token")
    assert asked["refused_in_stream"]["error"].startswith("temperature is -1.0")
    note("tritonclient", asked["version"], "error")


def test_a_deadline_ends_a_stream_and_a_cancel_is_counted(
    asked: dict[str, Any], server: Server, cancelled_before: int, note: Note
) -> None:
    assert "Deadline" in asked["late"]["error"]
    assert asked["cancelled_after"] == 3
    assert until_idle(server) >= cancelled_before + 1
    note("tritonclient", asked["version"], "deadline")
    note("tritonclient", asked["version"], "cancel")
