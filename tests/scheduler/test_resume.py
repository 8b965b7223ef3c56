"""Interrupted answers through the whole scheduler: resumed by the tokens that a client holds, found again by their names."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from octavo.v1 import inference_pb2 as pb
from octavo_scheduler.model import ServedModel

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker, answer
from tests.patience import until

Held = Sequence[Sequence[int]]
PROMPT = [5, 6, 7]


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    async with paper_service(model, tmp_path, PaperWorker(page_size=4, pages=128, max_slots=16)) as service:
        service.is_open.set()
        yield service


def request(held: Held = ((),), *, max_tokens: int = 24, seed: int | None = 0, name: str = "", **stopping: Any) -> Any:
    """For as many answers as beginnings are held."""
    options = pb.GenerationOptions(
        sampling=pb.SamplingOptions(n=len(held), seed=seed),
        stopping=pb.StoppingOptions(max_tokens=max_tokens, ignore_eos=True, **stopping),
        output=pb.OutputOptions(skip_special_tokens=False),
    )
    if any(held):
        first, *others = (pb.TokenIds(ids=tokens) for tokens in held)
        options.scheduling.resume_from.CopyFrom(first)
        options.scheduling.resume_from_others.extend(others)
    prompt = pb.Prompt(token_ids=pb.TokenIds(ids=PROMPT))
    return pb.GenerateStreamRequest(prompt=prompt, options=options, request_id=name)


class Heard:
    """What came over a stream, by branch."""

    def __init__(self, n: int = 1, held: Held = ()) -> None:
        self.tokens = [list(tokens) for tokens in held] or [[] for _ in range(n)]
        self.texts = [""] * len(self.tokens)
        self.seed: int | None = None
        self.end: pb.StreamEnd | None = None

    def take(self, event: pb.GenerateStreamResponse) -> None:
        match event.WhichOneof("event"):
            case "start":
                assert self.seed is None, "a stream starts once"
                self.seed = event.start.seed
            case "delta":
                assert self.seed is not None, "the start comes first"
                delta = event.delta
                assert delta.first_index == len(self.tokens[delta.branch])
                self.tokens[delta.branch] += delta.token_ids
                self.texts[delta.branch] += delta.text
            case "end":
                self.end = event.end


async def hear(service: PaperService, message: pb.GenerateStreamRequest, held: Held = ()) -> Heard:
    heard = Heard(max(message.options.sampling.n, 1), held)
    async for event in service.stub.GenerateStream(message):
        heard.take(event)
    assert heard.end is not None
    return heard


async def break_off(service: PaperService, message: pb.GenerateStreamRequest, num_tokens: int) -> Heard:
    """Reads until it holds so many tokens and loses the connection."""
    heard = Heard(max(message.options.sampling.n, 1))
    call = service.stub.GenerateStream(message)
    async for event in call:
        heard.take(event)
        if sum(map(len, heard.tokens)) >= num_tokens:
            break
    call.cancel()
    return heard


async def until_free(service: PaperService) -> None:
    core = service.scheduler.loop.core
    await until(lambda: not core.requests and not core.workers["w0"].device.num_held)


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call:
            pass
    return caught.value.code(), caught.value.details() or ""


@pytest.mark.parametrize("stop", [False, True])
async def test_resumed_wherever_a_message_ended_the_rest_is_what_it_would_have_been(
    service: PaperService, stop: bool
) -> None:
    vocabulary = service.scheduler.front.model.vocabulary
    text = vocabulary.decode(answer(PROMPT, 24), skip_special_tokens=False)
    stopping: dict[str, Any] = {"stop": [text[12:17]]} if stop else {}
    whole, seams = Heard(), list[tuple[list[int], str]]()
    async for event in service.stub.GenerateStream(request(**stopping)):
        whole.take(event)
        if event.WhichOneof("event") == "delta" and event.delta.token_ids:
            seams.append((list(whole.tokens[0]), whole.texts[0]))
    assert whole.end is not None
    assert (len(whole.tokens[0]) < 24) is stop
    for tokens, before in seams:
        rest = await hear(service, request([tokens], **stopping), [tokens])
        assert rest.tokens == whole.tokens
        assert before + rest.texts[0] == whole.texts[0]
        assert rest.end is not None
        assert rest.end.branches == whole.end.branches
        assert rest.end.usage.completion_tokens == whole.end.usage.completion_tokens
        assert rest.end.usage.prompt_tokens == len(PROMPT)
    await until_free(service)


async def test_each_of_several_answers_is_resumed_where_it_broke_off(service: PaperService) -> None:
    whole = [answer(PROMPT, 24, 0, branch) for branch in range(4)]
    places = [24, 0, 7, 23]
    held = [ids[:place] for ids, place in zip(whole, places, strict=True)]
    rest = await hear(service, request(held), held)
    assert rest.tokens == whole
    assert rest.end is not None
    assert [end.finish.reason for end in rest.end.branches] == [pb.FINISH_REASON_LENGTH] * 4
    assert rest.end.usage.completion_tokens == 4 * 24


async def test_the_seed_that_was_drawn_is_told_and_resuming_with_it_is_exact(service: PaperService) -> None:
    whole = await hear(service, request(seed=None))
    assert whole.seed is not None
    assert whole.tokens[0] == answer(PROMPT, 24, whole.seed)
    held = [whole.tokens[0][:9]]
    assert (await hear(service, request(held, seed=whole.seed), held)).tokens == whole.tokens


async def test_an_answer_of_which_only_the_end_was_lost_costs_nothing(service: PaperService) -> None:
    """What the branch held back until its end comes once more, in a message without tokens; whoever has it leaves it out."""
    held = [answer(PROMPT, 24)]
    vocabulary = service.scheduler.front.model.vocabulary
    rest = await hear(service, request(held), held)
    assert rest.texts[0] in ("", "\ufffd")
    assert vocabulary.decode(held[0], skip_special_tokens=False).endswith(rest.texts[0])
    assert rest.end is not None
    assert rest.end.branches[0].finish.reason == pb.FINISH_REASON_LENGTH
    stop = held[0][7]
    rest = await hear(service, request([held[0][:8]], stop_token_ids=[stop]), [held[0][:8]])
    assert rest.end is not None
    assert rest.end.branches[0].finish.token_id == stop
    assert service.scheduler.loop.core.counters.accepted == 0


@pytest.mark.parametrize(
    ("held", "sentence"),
    [
        ([[1] * 25], "resume_from has 25 tokens; the answer has at most 24"),
        ([[900]], "token id 900 is outside the vocabulary of 900 tokens"),
        ([[4, 9, 4]], "resume_from goes on after a token that ends the answer"),
    ],
)
async def test_what_nobody_can_have_been_sent_is_refused(service: PaperService, held: Held, sentence: str) -> None:
    call = service.stub.GenerateStream(request(held, stop_token_ids=[9]))
    assert await status_of(call) == (grpc.StatusCode.INVALID_ARGUMENT, sentence)


async def test_tokens_beyond_a_stop_string_are_refused(service: PaperService) -> None:
    held = [answer(PROMPT, 24)]
    text = service.scheduler.front.model.vocabulary.decode(held[0], skip_special_tokens=False)
    code, sentence = await status_of(service.stub.GenerateStream(request(held, stop=[text[3:6]])))
    assert (code, sentence) == (grpc.StatusCode.INVALID_ARGUMENT, "resume_from goes on after the end of the answer")


async def test_more_answers_cannot_be_resumed_than_were_asked_for(service: PaperService) -> None:
    message = request([[1], [2]])
    message.options.sampling.n = 1
    code, sentence = await status_of(service.stub.GenerateStream(message))
    assert (code, sentence) == (grpc.StatusCode.INVALID_ARGUMENT, "resume_from_others has 1 answers; n is 1")


async def test_an_answer_is_found_again_by_its_name_and_nothing_is_computed_twice(service: PaperService) -> None:
    counters = service.scheduler.loop.core.counters
    before = await break_off(service, request(name="mine", seed=None, max_tokens=200), 60)
    await until_free(service)
    computed = counters.generated_tokens
    rest = await hear(service, request(before.tokens, name="mine", seed=None, max_tokens=200), before.tokens)
    assert before.seed == rest.seed
    assert rest.tokens[0] == answer(PROMPT, 200, rest.seed or 0)
    assert counters.generated_tokens - computed <= 200 - len(before.tokens[0])
    assert computed < 200
    again = await hear(service, request(name="mine", seed=None, max_tokens=200))
    assert again.tokens == rest.tokens
    assert before.texts[0] + rest.texts[0] == again.texts[0]
    assert counters.accepted == 2, "a whole answer is told once more, not computed"


async def test_who_asks_again_while_the_answer_is_computed_reads_along(service: PaperService) -> None:
    service.is_open.clear()
    first = asyncio.create_task(hear(service, request(name="mine", seed=None)))
    await until(lambda: bool(service.scheduler.loop.core.requests))
    second = asyncio.create_task(hear(service, request(name="mine", seed=None)))
    await until(lambda: [len(t.readers) for t in service.scheduler.front.live.values()] == [2])
    service.is_open.set()
    one, other = await asyncio.gather(first, second)
    assert one.tokens == other.tokens == [answer(PROMPT, 24, one.seed or 0)]
    assert service.scheduler.loop.core.counters.accepted == 1


async def test_the_request_goes_on_until_its_last_reader_has_left(service: PaperService) -> None:
    service.is_open.clear()
    first, second = (service.stub.GenerateStream(request(name="mine")) for _ in range(2))
    (transcript,) = await live(service, readers=2)
    first.cancel()
    await until(lambda: len(transcript.readers) == 1)
    service.is_open.set()
    heard = Heard()
    async for event in second:
        heard.take(event)
    assert heard.tokens == [answer(PROMPT, 24)]
    assert service.scheduler.loop.core.counters.cancelled == 0


async def live(service: PaperService, readers: int) -> list[Any]:
    transcripts = service.scheduler.front.live
    await until(lambda: [len(t.readers) for t in transcripts.values()] == [readers])
    return list(transcripts.values())


async def test_another_request_under_a_name_in_use_is_refused_and_harms_nobody(service: PaperService) -> None:
    whole = await hear(service, request(name="mine"))
    for other in (
        request(name="mine", max_tokens=23),
        request(name="mine", seed=1),
        request([(), ()], name="mine"),
        request(name="mine", stop=["x"]),
    ):
        code, sentence = await status_of(service.stub.GenerateStream(other))
        assert code is grpc.StatusCode.ALREADY_EXISTS
        assert sentence == "another request is called mine, or was until a moment ago"
    assert (await hear(service, request(name="mine"))).tokens == whole.tokens
    elsewhere = request(name="mine", max_tokens=5)
    elsewhere.options.scheduling.tenant = "somebody else"
    assert (await hear(service, elsewhere)).tokens == [answer(PROMPT, 5)]


async def test_a_beginning_that_is_not_the_answers_own_is_refused(service: PaperService) -> None:
    await hear(service, request(name="mine"))
    code, sentence = await status_of(service.stub.GenerateStream(request([[1, 2]], name="mine")))
    assert (code, sentence) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "resume_from is not how the answer to this request began",
    )


async def test_a_readers_own_deadline_ends_it_and_not_the_other_reader(service: PaperService) -> None:
    service.is_open.clear()
    hurried = service.stub.GenerateStream(request(name="mine"), timeout=0.3)
    await live(service, readers=1)
    patient = asyncio.create_task(hear(service, request(name="mine")))
    await live(service, readers=2)
    assert (await status_of(hurried))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    service.is_open.set()
    assert (await patient).tokens == [answer(PROMPT, 24)]


async def test_a_whole_answer_may_be_asked_for_under_the_name_of_a_stream(service: PaperService) -> None:
    await break_off(service, request(name="mine"), 5)
    stream = request(name="mine")
    response = await service.stub.Generate(
        pb.GenerateRequest(prompt=stream.prompt, options=stream.options, request_id="mine")
    )
    assert list(response.completions[0].token_ids) == answer(PROMPT, 24)
