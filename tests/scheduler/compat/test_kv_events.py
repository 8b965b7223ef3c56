"""A subscriber that follows what the prefix caches hold, and so knows it as a gateway would."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from octavo.foreign import vllm_engine_pb2 as pb
from octavo.foreign import vllm_engine_pb2_grpc
from octavo_scheduler import limits
from octavo_scheduler.compat import kv_events, vllm_engine
from octavo_scheduler.compat.kv_events import MOST_BLOCKS, cached_pages, changes, snapshot
from octavo_scheduler.core.pages import Content
from octavo_scheduler.core.prefix import child_key
from octavo_scheduler.model import ServedModel

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker

PAGE = 4


class Subscriber:
    """Takes batches; `tokens` is what it knows: the whole beginning that each page ends, by the page's name."""

    def __init__(self) -> None:
        self.tokens: dict[int, tuple[int, ...]] = {}

    def take(self, batch: pb.KvEventBatch) -> None:
        for event in batch.events:
            match event.WhichOneof("data"):
                case "cleared":
                    self.tokens.clear()
                case "removed":
                    for name in event.removed.block_hashes:
                        del self.tokens[name]
                case "stored":
                    known = event.stored.HasField("parent_block_hash")
                    beginning = self.tokens[event.stored.parent_block_hash] if known else ()
                    for block in event.stored.blocks:
                        beginning += tuple(block.token_ids)
                        self.tokens[block.block_hash] = beginning

    @property
    def prefixes(self) -> set[tuple[int, ...]]:
        return set(self.tokens.values())


def prefixes(ids: list[int]) -> set[tuple[int, ...]]:
    return {tuple(ids[:end]) for end in range(PAGE, len(ids) + 1, PAGE)}


def random_pages(chance: random.Random) -> dict[bytes, Content]:
    """Trees of pages, parents first."""
    pages: dict[bytes, Content] = {}
    parents = [b"root"]
    for _ in range(chance.randrange(40)):
        parent = chance.choice(parents)
        tokens = tuple(chance.randrange(3) for _ in range(2))
        key = child_key(parent, tokens)
        if key not in pages:
            pages[key] = Content(key, tokens, parent)
            parents.append(key)
    return pages


def beginnings(pages: dict[bytes, Content]) -> set[tuple[int, ...]]:
    found: dict[bytes, tuple[int, ...]] = {b"root": ()}
    for page in pages.values():
        found[page.key] = found[page.parent] + page.tokens
    return set(found.values()) - {()}


def test_a_snapshot_and_any_changes_leave_a_subscriber_with_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_events, "MOST_BLOCKS", 3)
    chance = random.Random(7)
    for _ in range(200):
        subscriber, known = Subscriber(), random_pages(chance)
        for batch in snapshot(known):
            subscriber.take(batch)
        for _ in range(3):
            assert subscriber.prefixes == beginnings(known)
            pages = random_pages(chance)
            for batch in changes(known, pages):
                subscriber.take(batch)
            known = pages


def test_no_batch_has_more_than_its_share_of_pages_and_pages_in_a_row_are_one_event() -> None:
    pages: dict[bytes, Content] = {}
    parent = b"root"
    for number in range(MOST_BLOCKS + 5):
        key = child_key(parent, (number,))
        pages[key] = Content(key, (number,), parent)
        parent = key
    first, second = snapshot(pages)
    assert [event.WhichOneof("data") for event in first.events] == ["cleared", "stored"]
    assert (len(first.events[1].stored.blocks), len(second.events[0].stored.blocks)) == (MOST_BLOCKS, 5)
    assert (second.snapshot.index, second.snapshot.count, second.snapshot.blocks) == (1, 2, len(pages))
    assert list(changes(pages, pages)) == []


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PaperService]:
    monkeypatch.setattr(vllm_engine, "LOOK_SECONDS", 0.01)
    async with paper_service(model, tmp_path, PaperWorker(page_size=PAGE, pages=32, host_pages=8)) as service:
        service.is_open.set()
        yield service


def subscribe(service: PaperService) -> Any:
    stub: Any = vllm_engine_pb2_grpc.VllmEngineStub(service.channel)
    return stub.SubscribeKvEvents(pb.SubscribeKvEventsRequest())


async def follow(call: Any, subscriber: Subscriber, wanted: set[tuple[int, ...]]) -> list[int]:
    """Takes batches until the subscriber knows what is wanted; their sequence numbers."""
    numbers: list[int] = []
    while not numbers or subscriber.prefixes != wanted:
        batch = await call.read()
        subscriber.take(batch)
        numbers.append(batch.sequence_number)
    return numbers


async def test_a_subscriber_learns_what_is_there_then_what_comes_and_what_goes(service: PaperService) -> None:
    ids = list(range(10, 18))
    first = ids + await service.ask("first", ids, max_tokens=5)
    call, subscriber = subscribe(service), Subscriber()
    numbers = await follow(call, subscriber, prefixes(first[:-1]))
    other = list(range(50, 62))
    second = other + await service.ask("second", other, max_tokens=3)
    numbers += await follow(call, subscriber, prefixes(first[:-1]) | prefixes(second[:-1]))
    await service.client.flush()
    numbers += await follow(call, subscriber, set())
    assert numbers == list(range(1, len(numbers) + 1))
    call.cancel()


async def test_pages_of_other_tenants_are_not_told(service: PaperService) -> None:
    await service.ask("theirs", list(range(10, 18)), tenant="somebody")
    core = service.scheduler.loop.core
    assert core.workers["w0"].device.num_cached > 0
    assert cached_pages(core) == {}


async def test_pages_of_a_worker_that_is_gone_are_gone(service: PaperService) -> None:
    ids = list(range(10, 18))
    whole = ids + await service.ask("first", ids, max_tokens=5)
    call, subscriber = subscribe(service), Subscriber()
    await follow(call, subscriber, prefixes(whole[:-1]))
    service.process.stop()
    await follow(call, subscriber, set())
    call.cancel()


async def test_there_is_a_limit_to_subscribers_and_one_that_leaves_makes_room(
    service: PaperService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_KV_SUBSCRIBERS", 1)
    first = subscribe(service)
    await first.read()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await subscribe(service).read()
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    first.cancel()
    for _ in range(200):
        second = subscribe(service)
        try:
            assert (await second.read()).sequence_number == 1
            break
        except grpc.aio.AioRpcError:
            continue
    else:
        raise AssertionError("the subscriber that left is still counted")
    second.cancel()
