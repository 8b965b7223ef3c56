"""Clients that were asked to resume: what they yield is what an undisturbed stream yields."""

import asyncio
from contextlib import aclosing

import pytest
from octavo.v1 import inference_pb2 as pb
from octavo_client import AsyncClient, Client, SamplingParams, errors, results, resume
from octavo_client.local import LocalServer

from tests.doubles.inference_server import SEED, InferenceServer
from tests.patience import PATIENCE

WORDS = "one three five seven"


@pytest.mark.parametrize("code", ["UNAVAILABLE", "CANCELLED", "RESOURCE_EXHAUSTED"])
@pytest.mark.parametrize("n", [1, 3])
async def test_a_stream_that_is_lost_every_other_word_yields_every_event_once(
    server: InferenceServer, code: str, n: int
) -> None:
    async with AsyncClient(server.address, resume=True) as client:
        prompt = f"lose {code} 2 {WORDS}"
        start, *deltas, end = [event async for event in client.stream(prompt, SamplingParams(n=n))]
    assert isinstance(start, results.Start)
    assert isinstance(end, results.End)
    words = prompt.upper().split()
    for index in range(n):
        mine = [d for d in deltas if isinstance(d, results.Delta) and d.index == index]
        assert "".join(d.text for d in mine).split() == words[index:]
        assert [d.first_index for d in mine] == list(range(len(words) - index))
    assert len({request.request_id for request in server.requests}) == 1
    assert {request.options.sampling.seed for request in server.requests[1:]} == {SEED}
    assert [len(request.options.scheduling.resume_from.ids) for request in server.requests] == [0, 2, 4, 6]


async def test_a_whole_answer_is_whole_also_when_its_connection_is_lost(server: InferenceServer) -> None:
    async with AsyncClient(server.address) as client:
        lost = await client.generate(f"lose UNAVAILABLE 2 {WORDS}", request_id="mine", resume=True)
        alike = await client.generate(f"LOSE unavailable 2 {WORDS}", request_id="other")
        chat = await client.chat([{"role": "user", "content": f"lose UNAVAILABLE 3 {WORDS}"}], resume=True)
    assert lost.outputs == alike.outputs
    assert (lost.usage, lost.timings, lost.request_id) == (alike.usage, alike.timings, "mine")
    assert chat.outputs[0].text.split() == f"LOSE UNAVAILABLE 3 {WORDS.upper()}".split()


def test_the_client_without_async_resumes_too(local_server: LocalServer) -> None:
    with Client(local_server.address, resume=True) as client:
        events = list(client.stream(f"lose UNAVAILABLE 2 {WORDS}"))
        whole = client.chat([{"role": "user", "content": f"lose UNAVAILABLE 3 {WORDS}"}])
    assert [type(event) for event in events] == [results.Start, *[results.Delta] * 7, results.End]
    assert len(whole.outputs[0].token_ids) == 7


async def test_who_did_not_ask_for_it_gets_the_error(server: InferenceServer) -> None:
    async with AsyncClient(server.address, resume=True) as client:
        with pytest.raises(errors.Unavailable, match="The connection is lost"):
            async for _ in client.stream(f"lose UNAVAILABLE 2 {WORDS}", resume=False):
                pass


async def test_what_resuming_cannot_mend_is_raised_at_once(server: InferenceServer) -> None:
    async with AsyncClient(server.address, resume=True) as client:
        with pytest.raises(errors.InvalidRequest):
            await client.generate("fail INVALID_ARGUMENT no")
        with pytest.raises(errors.ServerFault):
            await client.generate(f"lose INTERNAL 2 {WORDS}")
        with pytest.raises(errors.DeadlineExceeded):
            await client.generate("hang", timeout=0.2)
    assert len(server.requests) == 3


async def test_the_time_given_to_a_call_covers_all_attempts(
    server: InferenceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "FIRST_PAUSE_SECONDS", 0.2)
    async with AsyncClient(server.address, resume=True) as client:
        with pytest.raises(errors.DeadlineExceeded):
            await client.generate("lose UNAVAILABLE 1 " + " ".join("abcdefghij"), timeout=0.3)


async def test_a_client_gives_up_when_nobody_answers_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "PATIENCE_SECONDS", 0.2)
    async with AsyncClient("127.0.0.1:1", resume=True) as client:
        with pytest.raises(errors.Unavailable, match="No server answers at"):
            await client.generate("one")


async def test_leaving_a_resumed_stream_cancels_the_call(server: InferenceServer) -> None:
    async with AsyncClient(server.address, resume=True) as client:
        async with aclosing(client.stream("hang", request_id="left")) as events:
            await anext(events)
        assert await asyncio.wait_for(server.cancelled.get(), PATIENCE) == "left"


def test_text_that_was_held_back_until_the_end_is_taken_once() -> None:
    held = resume.Held(1)
    last = results.Delta(0, "?", [], 2)
    for event in (results.Start("r", 1, 0, 0.0, 5), results.Delta(0, "ab", [1, 2], 0), last):
        assert held.take(event) is event
    asked = held.rest(pb.ChatStreamRequest())
    assert list(asked.options.scheduling.resume_from.ids) == [1, 2]
    assert asked.options.sampling.seed == 5
    assert held.take(results.Start("r", 1, 1, 0.5, 5)) is None
    assert held.take(last) is None


def test_a_gap_is_the_servers_fault() -> None:
    held = resume.Held(1)
    held.take(results.Start("r", 1, 0, 0.0))
    with pytest.raises(errors.ServerFault, match="token 3 instead of 0"):
        held.take(results.Delta(0, "d", [4], 3))
