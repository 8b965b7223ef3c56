import asyncio
from contextlib import aclosing

import pytest
from octavo.v1 import inference_pb2 as pb
from octavo_client import AsyncClient, SamplingParams, errors, results

from tests.doubles.inference_server import InferenceServer


async def test_generate_returns_text_tokens_reasons_and_figures(server: InferenceServer) -> None:
    async with AsyncClient(server.address) as client:
        output = await client.generate("one two", SamplingParams(max_tokens=5), request_id="mine")
    assert output == results.RequestOutput(
        request_id="mine",
        prompt="one two",
        prompt_token_ids=None,
        outputs=[results.CompletionOutput(0, "ONE TWO ", [3, 3], "stop", 2)],
        usage=results.Usage(prompt_tokens=2, completion_tokens=2, cached_tokens=1),
        timings=results.Timings(0.5, 1.0, 2.0, 1),
    )
    assert server.requests[0].options.stopping.max_tokens == 5


async def test_a_stream_is_one_start_then_deltas_then_one_end(server: InferenceServer) -> None:
    async with AsyncClient(server.address) as client:
        start, *deltas, end = [event async for event in client.stream([2, 1], request_id="mine")]
    assert start == results.Start("mine", prompt_tokens=2, cached_tokens=1, queue_seconds=0.5, seed=7)
    assert deltas == [results.Delta(0, "XX ", [2], 0), results.Delta(0, "X ", [1], 1)]
    assert isinstance(end, results.End)
    assert end.answers == [results.AnswerEnd(0, "stop", 2)]


async def test_several_answers_are_told_apart_by_their_index(server: InferenceServer) -> None:
    params = SamplingParams(n=3)
    async with AsyncClient(server.address) as client:
        whole = await client.generate("a bb ccc", params)
        events = [event async for event in client.stream("a bb ccc", params)]
    assert whole.outputs == [
        results.CompletionOutput(0, "A BB CCC ", [1, 2, 3], "stop", 2),
        results.CompletionOutput(1, "BB CCC ", [2, 3], "stop", 2),
        results.CompletionOutput(2, "CCC ", [3], "stop", 2),
    ]
    assert whole.usage == results.Usage(prompt_tokens=3, completion_tokens=6, cached_tokens=1)
    deltas = [event for event in events if isinstance(event, results.Delta)]
    for answer in whole.outputs:
        mine = [delta for delta in deltas if delta.index == answer.index]
        assert "".join(delta.text for delta in mine) == answer.text
        assert [delta.first_index for delta in mine] == list(range(len(answer.token_ids)))
    assert isinstance(events[-1], results.End)
    assert events[-1].answers == [results.AnswerEnd(index, "stop", 2) for index in range(3)]


async def test_chat_and_chat_stream_send_the_conversation(server: InferenceServer) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "good day"}]
    async with AsyncClient(server.address) as client:
        whole = await client.chat(messages)
        streamed = [event.text async for event in client.chat_stream(messages) if isinstance(event, results.Delta)]
    assert whole.outputs[0].text == "".join(streamed) == "GOOD DAY "
    assert [message.role for message in server.requests[1].messages] == ["system", "user"]


async def test_without_params_the_servers_defaults_hold(server: InferenceServer) -> None:
    async with AsyncClient(server.address, model="name") as client:
        await client.generate("one")
    assert not server.requests[0].HasField("options")
    assert server.requests[0].model == "name"


async def test_models_and_status_are_listed(server: InferenceServer) -> None:
    async with AsyncClient(server.address) as client:
        assert [model.name for model in await client.list_models()] == ["double"]
        assert (await client.status()).workers[0].device.total == 100


async def test_a_status_becomes_its_error_for_whole_answers_and_streams(server: InferenceServer) -> None:
    async with AsyncClient(server.address) as client:
        with pytest.raises(errors.InvalidRequest, match=r"^Needs 9 pages of 7\.$"):
            await client.generate("fail INVALID_ARGUMENT Needs 9 pages of 7.")
        with pytest.raises(errors.ServerFault, match="lost"):
            _ = [event async for event in client.stream("fail INTERNAL lost")]


async def test_overload_is_retried_a_few_times_when_the_server_says_then_raised(server: InferenceServer) -> None:
    async with AsyncClient(server.address) as client:
        with pytest.raises(errors.Overloaded) as raised:
            await client.generate("fail RESOURCE_EXHAUSTED full")
    assert raised.value.retry_after == 0.02
    assert len(server.requests) == 4


async def test_nobody_at_the_address_is_unavailable() -> None:
    async with AsyncClient("unix:/nowhere/grpc.sock") as client:
        with pytest.raises(errors.Unavailable, match=r"^No server answers at unix:/nowhere/grpc\.sock: .*No such file"):
            await client.status()


async def test_a_call_over_its_timeout_is_cancelled_at_the_server(server: InferenceServer) -> None:
    async with AsyncClient(server.address) as client:
        with pytest.raises(errors.DeadlineExceeded):
            await client.generate("hang", timeout=0.2, request_id="late")
        assert await server.cancelled.get() == "late"


async def test_leaving_a_stream_early_cancels_it_at_the_server(server: InferenceServer) -> None:
    async with AsyncClient(server.address) as client:
        async for event in client.stream("hang", request_id="left"):
            if isinstance(event, results.Delta):
                break
        assert await server.cancelled.get() == "left"
    assert server.live == 0


async def test_closing_a_stream_cancels_it_at_the_server(server: InferenceServer) -> None:
    async with AsyncClient(server.address) as client:
        async with aclosing(client.stream("hang", request_id="closed")) as events:
            await anext(events)
        assert await server.cancelled.get() == "closed"


@pytest.mark.parametrize("kind", ["whole", "stream"])
async def test_cancelling_the_task_cancels_the_call_at_the_server(server: InferenceServer, kind: str) -> None:
    started = asyncio.Event()

    async def read(client: AsyncClient) -> None:
        async for _ in client.stream("hang", request_id=kind):
            started.set()

    async with AsyncClient(server.address) as client:
        if kind == "stream":
            task = asyncio.create_task(read(client))
            await started.wait()
        else:
            whole = asyncio.create_task(client.generate("hang", request_id=kind))
            while not server.live:
                await asyncio.sleep(0.01)
            task = whole  # type: ignore[assignment]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await server.cancelled.get() == kind


async def test_logprobs_are_summed_and_keyed_by_token() -> None:
    chosen = [pb.TokenLogprob(token_id=7, logprob=-0.5), pb.TokenLogprob(token_id=8, logprob=-0.25)]
    positions = [pb.PositionLogprobs(chosen=each, top=[each]) for each in chosen]
    finish = pb.Finish(reason=pb.FINISH_REASON_LENGTH)
    completion = pb.Completion(branch=1, token_ids=[7, 8], logprobs=positions, finish=finish)
    output = results.request_output(pb.GenerateResponse(completions=[completion]), "a").outputs[0]
    assert output.cumulative_logprob == -0.75
    assert output.logprobs == [
        results.TokenLogprobs(7, -0.5, {7: -0.5}),
        results.TokenLogprobs(8, -0.25, {8: -0.25}),
    ]
    assert (output.index, output.finish_reason, output.stop_reason) == (1, "length", None)


async def test_an_event_newer_than_this_client_is_passed_over() -> None:
    assert results.stream_event(pb.GenerateStreamResponse(request_id="a")) is None
