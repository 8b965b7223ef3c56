"""Texts and chats to tokens and back, and what clients are told about the model; through the client, over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from octavo.v1 import inference_pb2 as pb
from octavo_client.errors import InvalidRequest, ModelNotFound
from octavo_scheduler import limits
from octavo_scheduler.model import ServedModel

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker
from tests.patience import until

TURNS = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi <|im_end|>"}]


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    async with paper_service(model, tmp_path, PaperWorker()) as running:
        yield running


async def test_a_text_has_the_tokens_of_the_prompt_that_it_would_be(service: PaperService, model: ServedModel) -> None:
    for text in ("", "the page table", "<|im_start|>", "\u4f60\u597d"):
        ids = await service.client.tokenize(text)
        assert ids == model.vocabulary.encode(text)
        assert await service.client.count_tokens(text) == len(ids)
        assert await service.client.detokenize(ids, skip_special_tokens=False) == text
    assert await service.client.detokenize(model.vocabulary.encode("<|im_start|>a")) == "a"


async def test_a_chat_has_the_tokens_of_the_prompt_that_its_template_makes(
    service: PaperService, model: ServedModel
) -> None:
    assert model.template is not None
    expected = model.vocabulary.encode_chat(model.template, [(turn["role"], turn["content"]) for turn in TURNS])
    assert await service.client.tokenize(TURNS) == expected
    assert await service.client.count_tokens(TURNS) == len(expected)


async def test_more_tokens_than_the_context_has_are_counted_all_the_same(model: ServedModel, tmp_path: Path) -> None:
    async with paper_service(replace(model, max_context=8), tmp_path, PaperWorker()) as service:
        assert await service.client.count_tokens("a b c d e f") > 8
        with pytest.raises(InvalidRequest, match="there are 9 tokens; the context of tiny has 8"):
            await service.client.detokenize([5] * 9)


async def test_what_cannot_be_tokenised_is_refused_with_a_sentence(service: PaperService) -> None:
    with pytest.raises(InvalidRequest, match=f"token id {VOCAB_SIZE} is outside the vocabulary"):
        await service.client.detokenize([1, VOCAB_SIZE])
    with pytest.raises(InvalidRequest, match="a message's role is"):
        await service.client.tokenize([{"role": "robot", "content": ""}])
    with pytest.raises(InvalidRequest, match="a chat has 1 to"):
        await service.client.tokenize([])
    with pytest.raises(InvalidRequest, match="the prompt has 1000000 bytes; the context of tiny"):
        await service.client.tokenize("x" * 1_000_000)
    service.client.model = "other"
    for call in (service.client.tokenize("a"), service.client.detokenize([5]), service.client.get_model()):
        with pytest.raises(ModelNotFound, match="no model 'other' is served here"):
            await call


async def test_long_texts_are_tokenised_while_others_are_served(model: ServedModel, tmp_path: Path) -> None:
    async with paper_service(replace(model, max_context=1 << 22), tmp_path, PaperWorker()) as service:
        text = "the and ing you are with this that " * 30_000
        long = asyncio.create_task(service.client.tokenize(text))
        await until(lambda: service.scheduler.front.num_aside == 1)
        assert await service.client.count_tokens("a") == 1
        assert not long.done(), "that took place meanwhile"
        assert len(await long) > 100_000


async def test_the_model_is_described_with_its_limits_and_its_workers(service: PaperService) -> None:
    described = await service.client.get_model()
    (listed,) = await service.client.list_models()
    assert described.model == listed
    assert (listed.name, listed.vocab_size, listed.max_context) == ("tiny", VOCAB_SIZE, 4096)
    assert (list(listed.end_token_ids), listed.has_chat_template) == ([2], True)
    assert described.limits.answers == limits.MAX_ANSWERS
    assert described.limits.seconds == limits.MAX_REQUEST_SECONDS
    assert described.weights_digest == b"paper".hex()
    assert list(described.engines) == [pb.Engine(kernels="paper", kv_dtype="int32", page_size=4, num_workers=1)]


async def test_the_models_own_values_are_told_where_it_has_some(model: ServedModel, tmp_path: Path) -> None:
    own = replace(model, defaults={"temperature": 0.5, "top_k": 20.0}, template=None)
    async with paper_service(own, tmp_path, PaperWorker()) as service:
        described = await service.client.get_model()
        assert described.defaults == pb.SamplingOptions(temperature=0.5, top_k=20)
        assert not described.model.has_chat_template
