"""Log-probabilities by vllm.grpc.engine: those that a worker told, once each, of answers and of the prompt."""

from struct import iter_unpack
from typing import Any

import grpc
import pytest
from octavo.foreign import vllm_engine_pb2 as pb
from octavo_scheduler import limits

from tests.doubles.paper_worker import answer, told
from tests.scheduler.compat.test_vllm_engine import Engine, engine

__all__ = ["engine"]

PROMPT = [7, *range(40, 60)]
Position = tuple[int, float, list[tuple[int, float]]]


def due(history: list[int], place: int, num_best: int) -> Position:
    (token, value), *best = iter_unpack("<if", told(history, place, num_best))
    return token, value, best


def due_answer(num_best: int) -> list[Position]:
    history = answer(PROMPT, 6)
    return [due([*PROMPT, *history], len(PROMPT) + place, num_best) for place in range(len(history))]


def positions(logprobs: pb.OutputLogProbs) -> list[Position]:
    best = [[*zip(top.token_ids, top.values, strict=True)] for top in logprobs.top_logprobs]
    return [*zip(logprobs.token_ids, logprobs.token_logprobs, best, strict=True)]


def check_input(logprobs: pb.InputLogProbs, num_best: int) -> None:
    first, *rest = logprobs.token_logprobs
    assert not first.HasField("value")
    assert list(logprobs.token_ids) == PROMPT
    assert not logprobs.top_logprobs[0].token_ids
    for place, each in enumerate(rest, start=1):
        token, value, best = due(PROMPT, place, num_best)
        top = logprobs.top_logprobs[place]
        assert (PROMPT[place], each.value, [*zip(top.token_ids, top.values, strict=True)]) == (token, value, best)


@pytest.mark.parametrize("num_best", [0, 1, limits.MAX_LOGPROBS])
async def test_chunks_tell_those_of_their_tokens_and_the_complete_does_not_tell_them_again(
    engine: Engine, num_best: int
) -> None:
    *chunks, last = await engine.generate(PROMPT, logprobs=num_best)
    assert [[position[0] for position in positions(each.chunk.output_logprobs)] for each in chunks] == [
        list(each.chunk.token_ids) for each in chunks
    ]
    assert [position for each in chunks for position in positions(each.chunk.output_logprobs)] == due_answer(num_best)
    assert not last.complete.HasField("output_logprobs")


async def test_without_chunks_the_complete_tells_all(engine: Engine) -> None:
    (only,) = await engine.generate(PROMPT, stream=False, logprobs=3, prompt_logprobs=2)
    assert positions(only.complete.output_logprobs) == due_answer(3)
    check_input(only.complete.input_logprobs, 2)


async def test_those_of_the_prompt_come_with_the_first_chunk_of_each_answer(engine: Engine) -> None:
    responses = await engine.generate(PROMPT, n=2, prompt_logprobs=2)
    for index in range(2):
        first, *rest = [r.chunk for r in responses if r.HasField("chunk") and r.chunk.index == index]
        check_input(first.input_logprobs, 2)
        assert not any(chunk.HasField("input_logprobs") for chunk in rest)
    assert not any(r.chunk.HasField("output_logprobs") or r.complete.HasField("input_logprobs") for r in responses)


async def test_who_asks_for_none_gets_none(engine: Engine) -> None:
    responses = await engine.generate(PROMPT)
    parts = [getattr(response, response.WhichOneof("response")) for response in responses]
    assert not any(each.HasField(name) for each in parts for name in ("output_logprobs", "input_logprobs"))


REFUSED: list[dict[str, Any]] = [{"logprobs": limits.MAX_LOGPROBS + 1}, {"prompt_logprobs": -1}]


@pytest.mark.parametrize("params", REFUSED, ids=str)
async def test_more_than_the_limit_or_less_than_none_is_refused(engine: Engine, params: dict[str, Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await engine.generate(PROMPT, **params)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert next(iter(params)) in (caught.value.details() or "")
