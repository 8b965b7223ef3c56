"""Log-probabilities, min_tokens and bad words through the whole scheduler, with a paper worker behind it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from struct import iter_unpack

import pytest
from octavo.v1 import inference_pb2 as pb
from octavo_client import SamplingParams
from octavo_client.errors import InvalidRequest
from octavo_client.results import Delta, PromptLogprobs, RequestOutput, Start, TokenLogprobs
from octavo_scheduler import limits
from octavo_scheduler.model import ServedModel

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker, answer, told
from tests.patience import until

PROMPT = [7, *range(40, 60)]
PARAMS = SamplingParams(max_tokens=12, seed=0, ignore_eos=True, logprobs=3, prompt_logprobs=2)


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    async with paper_service(model, tmp_path, PaperWorker(page_size=4, pages=64)) as service:
        service.is_open.set()
        yield service


def due(history: list[int], place: int, num_best: int) -> TokenLogprobs:
    (token, logprob), *best = iter_unpack("<if", told(history, place, num_best))
    return TokenLogprobs(token, logprob, dict(best))


def assert_whole(output: RequestOutput, prompt: list[int], params: SamplingParams = PARAMS) -> None:
    for completion in output.outputs:
        history = [*prompt, *completion.token_ids]
        assert params.logprobs is not None
        expected = [due(history, place, params.logprobs) for place in range(len(prompt), len(history))]
        assert completion.logprobs == expected
        assert completion.cumulative_logprob == pytest.approx(sum(each.logprob for each in expected))
    if params.prompt_logprobs is None:
        assert output.prompt_logprobs is None
    else:
        rest = [due(prompt, place, params.prompt_logprobs) for place in range(1, len(prompt))]
        assert output.prompt_logprobs == [None, *rest]


async def test_a_whole_answer_has_log_probabilities_of_all_its_tokens_and_of_the_prompt(service: PaperService) -> None:
    output = await service.client.generate(PROMPT, PARAMS)
    assert output.outputs[0].token_ids == answer(PROMPT, 12)
    assert_whole(output, PROMPT)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 20])
async def test_SP13_any_number_up_to_the_limit_works_and_so_many_come(service: PaperService, count: int) -> None:
    params = replace(PARAMS, logprobs=count, prompt_logprobs=count)
    output = await service.client.generate(PROMPT, params)
    assert_whole(output, PROMPT, params)
    assert output.prompt_logprobs is not None
    assert [len(each.top) for each in output.prompt_logprobs if each] == [count] * (len(PROMPT) - 1)


async def test_who_asks_for_none_gets_none(service: PaperService) -> None:
    output = await service.client.generate(PROMPT, SamplingParams(max_tokens=3))
    assert (output.prompt_logprobs, output.outputs[0].logprobs) == (None, None)


async def test_a_stream_begins_with_the_start_then_the_prompt_then_one_position_for_each_token(
    service: PaperService,
) -> None:
    events = [event async for event in service.client.stream(PROMPT, replace(PARAMS, n=2))]
    kinds = [type(event) for event in events]
    assert kinds[0] is Start
    last_prompt = max(place for place, kind in enumerate(kinds) if kind is PromptLogprobs)
    assert last_prompt < kinds.index(Delta)
    prompt = [event for event in events if isinstance(event, PromptLogprobs)]
    assert [event.first_index for event in prompt] == [
        sum(len(before.logprobs) for before in prompt[:place]) for place in range(len(prompt))
    ]
    for event in events:
        if isinstance(event, Delta):
            assert [position.token_id for position in event.logprobs or ()] == event.token_ids


async def test_messages_stay_small_however_much_is_asked_for(model: ServedModel, tmp_path: Path) -> None:
    asked = replace(PARAMS, max_tokens=300, logprobs=20, prompt_logprobs=20)
    options = asked.as_proto()
    options.output.stream_interval = 64
    prompt = pb.Prompt(token_ids=pb.TokenIds(ids=[token % 900 for token in range(700)]))
    async with paper_service(model, tmp_path, PaperWorker(page_size=16, pages=80)) as large:
        large.is_open.set()
        request = pb.GenerateStreamRequest(prompt=prompt, options=options)
        sizes, tokens, scored = [], 0, 0
        async for response in large.stub.GenerateStream(request):
            sizes.append(response.ByteSize())
            tokens += len(response.delta.logprobs)
            scored += len(response.prompt.logprobs)
    assert (tokens, scored) == (300, 700)
    assert max(sizes) <= limits.STREAM_BUFFER_BYTES // 2


async def test_a_chat_has_them_too(service: PaperService) -> None:
    output = await service.client.chat([{"role": "user", "content": "hi"}], PARAMS)
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    assert len(output.prompt_logprobs) == output.usage.prompt_tokens
    assert len(output.outputs[0].logprobs or ()) == 12


async def test_PS04_who_lost_its_stream_gets_the_rest_with_one_position_for_each_token(service: PaperService) -> None:
    """A client that resumes by name: what it holds is not sent again, and what it gets fits on behind it."""
    stream = service.client.stream(PROMPT, PARAMS, request_id="mine")
    prompt, positions = [], []
    async for event in stream:
        if isinstance(event, PromptLogprobs):
            prompt += event.logprobs
        if isinstance(event, Delta):
            positions += event.logprobs or []
        if len(positions) >= 5:
            break
    await stream.aclose()
    await until(lambda: not service.scheduler.loop.core.requests)
    output = await service.client.generate(PROMPT, PARAMS, request_id="mine", resume=True)
    assert_whole(output, PROMPT)
    assert (output.outputs[0].logprobs or [])[: len(positions)] == positions
    assert output.prompt_logprobs == prompt


async def test_log_probabilities_that_only_their_receiver_knows_are_not_made_up(service: PaperService) -> None:
    held = answer(PROMPT, 4)
    options = PARAMS.as_proto()
    options.scheduling.resume_from.ids.extend(held)
    prompt = pb.Prompt(token_ids=pb.TokenIds(ids=PROMPT))
    response = await service.stub.Generate(pb.GenerateRequest(prompt=prompt, options=options, request_id="mine"))
    assert [each.chosen.token_id for each in response.completions[0].logprobs] == answer(PROMPT, 12)[4:]
    with pytest.raises(InvalidRequest, match="log-probabilities of the first 4 tokens"):
        await service.client.generate(PROMPT, PARAMS, request_id="mine")


async def test_ST09_no_stop_ends_an_answer_before_min_tokens_of_its_own(service: PaperService) -> None:
    plain = answer(PROMPT, 12)
    params = SamplingParams(max_tokens=12, seed=0, stop_token_ids=[plain[2]])
    early = (await service.client.generate(PROMPT, params)).outputs[0]
    assert (early.token_ids, early.stop_reason) == (plain[:3], plain[2])
    late = (await service.client.generate(PROMPT, replace(params, min_tokens=6))).outputs[0]
    assert len(late.token_ids) >= 6
    assert plain[2] not in late.token_ids[:6]


async def test_a_stop_text_within_min_tokens_is_part_of_the_answer(service: PaperService) -> None:
    params = SamplingParams(max_tokens=12, seed=0, ignore_eos=True)
    text = (await service.client.generate(PROMPT, params)).outputs[0].text
    stop = text[1]
    early = (await service.client.generate(PROMPT, replace(params, stop=stop))).outputs[0]
    late = (await service.client.generate(PROMPT, replace(params, stop=stop, min_tokens=12))).outputs[0]
    assert (early.text, early.finish_reason) == (text[: text.index(stop)], "stop")
    assert late.text.startswith(text[: len(text) - 1])
    assert len(late.token_ids) == 12


async def test_a_bad_word_does_not_come(service: PaperService, model: ServedModel) -> None:
    params = SamplingParams(max_tokens=12, seed=0, ignore_eos=True)
    plain = (await service.client.generate(PROMPT, params)).outputs[0].token_ids
    words = [model.vocabulary.decode([token]) for token in plain[:4]]
    banned = {tuple(model.vocabulary.encode_word(word)) for word in words if word.strip()}
    found = (await service.client.generate(PROMPT, replace(params, bad_words=[w for w in words if w.strip()]))).outputs[
        0
    ]
    for spelled in banned:
        size = len(spelled)
        assert all(tuple(found.token_ids[i : i + size]) != spelled for i in range(len(found.token_ids)))


async def test_SP16_requests_of_one_seed_side_by_side_say_the_same(service: PaperService) -> None:
    params = SamplingParams(max_tokens=8, seed=5, ignore_eos=True)
    outputs = await asyncio.gather(*(service.client.generate(PROMPT, params) for _ in range(3)))
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 1
