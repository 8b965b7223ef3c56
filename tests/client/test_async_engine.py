"""An engine inside a program with an event loop of its own, such as a web server's."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from octavo_client import AsyncLLMEngine, EngineArgs, SamplingParams, errors
from octavo_client.local import Programs


@pytest.fixture(scope="module")
def engine(programs: Programs) -> Iterator[AsyncLLMEngine]:
    made = AsyncLLMEngine.from_engine_args(EngineArgs(model="model", programs=programs))
    yield made
    made.shutdown()


@pytest.fixture(autouse=True)
async def one_connection_a_loop(engine: AsyncLLMEngine) -> Any:
    """Each test has an event loop of its own; programs have one."""
    yield
    if engine._client is not None:
        await engine._client.close()
        engine._client = None


async def test_each_output_is_all_of_the_answer_so_far_and_the_last_is_finished(engine: AsyncLLMEngine) -> None:
    outputs = [output async for output in engine.generate("one two three", SamplingParams(max_tokens=8), "a")]
    assert [output.outputs[0].text for output in outputs] == ["ONE ", "ONE TWO ", *["ONE TWO THREE "] * 2]
    assert [output.finished for output in outputs] == [False, False, False, True]
    assert {output.request_id for output in outputs} == {"a"}
    assert outputs[-1].outputs[0].finish_reason == "stop"
    assert outputs[-1].outputs[0].token_ids == [3, 3, 5]


async def test_several_answers_are_there_from_the_first_output_on(engine: AsyncLLMEngine) -> None:
    outputs = [output async for output in engine.generate("one two", SamplingParams(n=2), "b")]
    assert [[answer.text for answer in output.outputs] for output in (outputs[0], outputs[-1])] == [
        ["ONE ", ""],
        ["ONE TWO ", "TWO "],
    ]


async def test_requests_run_side_by_side_and_errors_are_those_of_the_client(engine: AsyncLLMEngine) -> None:
    async def last(prompt: str) -> str:
        return [output async for output in engine.generate(prompt, None, prompt)][-1].outputs[0].text

    assert await asyncio.gather(*(last(f"p{k}") for k in range(20))) == [f"P{k} " for k in range(20)]
    with pytest.raises(errors.InvalidRequest, match="too long"):
        await last("fail INVALID_ARGUMENT too long")
    await engine.check_health()


def test_a_model_that_cannot_be_served_is_said_at_the_start() -> None:
    with pytest.raises(errors.ConfigError, match="pipeline_parallel_size"):
        EngineArgs(model="model", pipeline_parallel_size=4)
