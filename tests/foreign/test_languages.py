"""The recipes in other languages: each streams, keeps a deadline, cancels, reads an error, and shows its token over TLS."""

import time

import pytest
from google.rpc import error_details_pb2, status_pb2

from tests.foreign.conftest import MAX_TOKENS, PROMPT, WHOLE_CONTEXT, Guarded, Note, Server
from tests.foreign.environments import HERE
from tests.foreign.recipes import QUICK, RECIPES, code_lines

LANGUAGES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.on_demand) for name in RECIPES]
each_language = pytest.mark.parametrize("language", LANGUAGES)


@pytest.mark.parametrize("language", RECIPES)
def test_a_recipe_has_at_most_sixty_lines(language: str) -> None:
    assert len(code_lines(HERE / RECIPES[language].source)) <= 60


@each_language
def test_deltas_make_the_whole_answer(language: str, address: str, expected: str, note: Note) -> None:
    recipe = RECIPES[language]
    result = recipe.run(address, PROMPT, "--max-tokens", str(MAX_TOKENS))
    assert result.returncode == 0, result.stderr
    assert result.stdout == expected
    assert f"{MAX_TOKENS} tokens, ended by FINISH_REASON_LENGTH" in result.stderr
    note(recipe.title, recipe.version(), "text")


@each_language
def test_a_deadline_ends_a_request_that_waits_and_nothing_is_left_of_it(
    language: str, server: Server, note: Note
) -> None:
    recipe = RECIPES[language]
    has_begun = language == "ruby"  # a deadline before the first message makes this gRPC trip over itself
    if not has_begun:
        server.drain()
    try:
        result = recipe.run(server.address, PROMPT, "--max-tokens", str(WHOLE_CONTEXT), "--deadline-ms", "2000")
    finally:
        server.resume()
    assert result.returncode == 1
    assert result.stderr.startswith(recipe.statuses("DEADLINE_EXCEEDED") + ": ")
    assert bool(result.stdout) is has_begun
    until_idle(server)
    note(recipe.title, recipe.version(), "deadline")


@each_language
def test_a_cancel_is_counted_by_the_server_and_frees_the_pages(language: str, server: Server, note: Note) -> None:
    recipe = RECIPES[language]
    cancelled = server.status().counters.cancelled
    result = recipe.run(server.address, PROMPT, "--max-tokens", str(WHOLE_CONTEXT), "--cancel-after", "3")
    assert result.returncode == 1, result.stderr
    assert result.stderr.startswith(recipe.statuses("CANCELLED") + ": ") or "anceled: " in result.stderr
    assert until_idle(server) == cancelled + 1
    note(recipe.title, recipe.version(), "cancel")


@each_language
def test_a_refusal_says_why_to_people_and_to_programs(language: str, address: str, note: Note) -> None:
    recipe = RECIPES[language]
    result = recipe.run(address, "")
    assert result.returncode == 1
    sentence, details = result.stderr.splitlines()
    assert sentence == f"{recipe.statuses('INVALID_ARGUMENT')}: the prompt is empty: it needs at least one token"
    status = status_pb2.Status.FromString(bytes.fromhex(details.removeprefix("details: ")))
    reason, wrong = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(reason)
    assert status.details[1].Unpack(wrong)
    assert (reason.domain, reason.reason) == ("octavo.v1", "INVALID_REQUEST")
    assert [violation.field for violation in wrong.field_violations] == ["prompt"]
    note(recipe.title, recipe.version(), "error")
    note(recipe.title, recipe.version(), "details")


@each_language
def test_tls_and_token_open_the_door_and_nothing_less_does(
    language: str, guarded: Guarded, expected: str, note: Note
) -> None:
    recipe, client = RECIPES[language], guarded.keys / "client"
    address = guarded.address.replace("127.0.0.1", "localhost")
    ask = (address, PROMPT, "--max-tokens", str(MAX_TOKENS), "--ca", str(client / "ca.crt"))
    result = recipe.run(*ask, "--token-file", str(client / "token"))
    assert result.returncode == 0, result.stderr
    assert result.stdout == expected
    refused = recipe.run(*ask)
    assert refused.returncode == 1
    assert refused.stderr.startswith(recipe.statuses("UNAUTHENTICATED") + ": ")
    note(recipe.title, recipe.version(), "TLS and token")


def until_idle(server: Server) -> int:
    """How many requests were cancelled, once none is alive and no page is held."""
    for _ in range(400):
        status = server.status()
        pages = status.workers[0].device
        if not status.live_requests and pages.free + pages.cached == pages.total:
            return status.counters.cancelled
        time.sleep(0.02)
    raise AssertionError(f"something is left: {status}")
