"""What an operator sees of, and may do to, a running service; through the client, over gRPC."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from octavo.v1 import admin_pb2 as pb
from octavo_client.errors import InvalidRequest, Overloaded, RequestError, ServerFault
from octavo_client.params import SamplingParams
from octavo_client.results import Delta, End
from octavo_scheduler import limits
from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Output
from octavo_scheduler.limits import MAX_EXPLANATIONS, MAX_PINS
from octavo_scheduler.model import ServedModel

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker, answer
from tests.patience import until


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    worker = PaperWorker(page_size=4, pages=16, host_pages=8, max_slots=2)
    async with paper_service(model, tmp_path, worker) as running:
        yield running


async def test_requests_are_listed_under_the_names_of_their_clients(service: PaperService) -> None:
    answers = await service.ask_in_one_plan(("a", [1, 2, 3, 4, 5]), ("b", [6]), ("c", [7, 8]))
    first, second, third = await service.client.list_requests()
    assert [first.request_id, second.request_id, third.request_id] == ["a", "b", "c"]
    assert len({first.id, second.id, third.id, "a", "b", "c"}) == 6
    (running,), (waiting,) = first.branches, third.branches
    assert running.state == pb.BRANCH_STATE_RUNNING
    assert (running.worker_id, running.slot in (0, 1)) == ("w0", True)
    assert (waiting.state, waiting.worker_id, waiting.HasField("slot")) == (pb.BRANCH_STATE_WAITING, "", False)
    assert third.prompt_tokens == 2
    assert third.age_seconds >= 0
    service.is_open.set()
    assert await asyncio.gather(*answers) == [answer([1, 2, 3, 4, 5], 8), answer([6], 8), answer([7, 8], 8)]
    assert await service.client.list_requests() == []


async def test_a_request_is_explained_under_either_name(service: PaperService) -> None:
    answers = await service.ask_in_one_plan(("same", [1, 2]), ("same", [3, 4]), ("late", [5]))
    texts = [each.text for each in await service.client.explain("same")]
    assert texts == ["runs on w0: 0 of 2 prompt tokens computed"] * 2
    (late,) = await service.client.explain("late")
    assert late.text.endswith(": all 2 slots of w0 are taken")
    assert [each.id for each in await service.client.explain(late.id)] == [late.id]
    service.is_open.set()
    await asyncio.gather(*answers)
    (gone,) = await service.client.explain(late.id)
    assert (gone.id, gone.text) == ("", "no such request is alive: it has ended, or never came")


async def test_an_aborted_request_ends_after_what_it_has_and_frees_what_it_holds(
    model: ServedModel, tmp_path: Path
) -> None:
    async with paper_service(model, tmp_path, PaperWorker(page_size=16, pages=256)) as service:
        params = SamplingParams(max_tokens=4000, seed=0, ignore_eos=True)
        stream = service.client.stream([1, 2, 3], params, request_id="mine")
        service.is_open.set()
        events = [await anext(stream), await anext(stream)]
        (mine,) = await service.client.list_requests()
        assert await service.client.abort("nobody", "mine") == [mine.id]
        events += [event async for event in stream]
        end = events[-1]
        assert isinstance(end, End)
        assert [each.finish_reason for each in end.answers] == ["abort"]
        ids = [token for event in events if isinstance(event, Delta) for token in event.token_ids]
        assert ids == answer([1, 2, 3], len(ids))
        assert end.usage.completion_tokens == len(ids) < 4000
        await until(lambda: service.scheduler.loop.core.workers["w0"].device.num_held == 0)
        assert await service.client.abort("mine") == []


async def test_all_requests_of_a_tenant_are_aborted_those_that_wait_too_and_no_others(service: PaperService) -> None:
    names = ("same", "same", "same", "same")
    tasks = await service.ask_in_one_plan(*((name, [number]) for number, name in enumerate(names)))
    alive = {each.tenant: each.id for each in await service.client.list_requests()}
    assert sorted(alive) == ["0", "1", "2", "3"]
    assert await service.client.abort(tenant="1") == [alive["1"]]
    assert await service.client.abort(alive["3"]) == [alive["3"]]
    assert await service.client.abort(tenant="") == []
    service.is_open.set()
    assert await asyncio.gather(*tasks) == [answer([0], 8), [], answer([2], 8), []]
    with pytest.raises(InvalidRequest, match="nothing is named"):
        await service.client.abort()


async def test_the_status_comes_again_and_again_until_its_watcher_leaves(service: PaperService) -> None:
    seen = []
    async for status in service.client.watch_status(0.1):
        seen.append(status)
        if len(seen) == 3:
            break
    assert [each.model for each in seen] == ["tiny"] * 3
    assert seen[0].uptime_seconds < seen[1].uptime_seconds < seen[2].uptime_seconds
    for seconds in (0.0, 0.05, 1e9, float("nan")):
        with pytest.raises(InvalidRequest, match=r"interval_seconds is .*; it must lie in \[0\.1, 3600\]"):
            await anext(service.client.watch_status(seconds))


async def test_watchers_are_limited_and_one_that_leaves_makes_room(
    service: PaperService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_WATCHERS", 2)
    watching = [service.client.watch_status(60.0) for _ in range(2)]
    for each in watching:
        await anext(each)
    with pytest.raises(Overloaded, match="2 watch the status already"):
        await anext(service.client.watch_status(60.0))
    await watching[0].aclose()

    async def watch_once() -> bool:
        try:
            await anext(service.client.watch_status(60.0))
        except Overloaded:
            return False
        return True

    await until(watch_once, "the one that left takes its place still")
    await watching[1].aclose()


async def test_the_page_map_adds_up_and_names_the_holders(service: PaperService) -> None:
    (task,) = await service.ask_in_one_plan(("a", [1, 2, 3, 4, 5]))
    (plain,) = await service.client.page_maps()
    (full,) = await service.client.page_maps("w0", with_holders=True)
    assert not plain.device.holders
    assert (full.worker_id, full.page_size) == ("w0", 4)
    assert (sum(full.device.num_pages), sum(full.host.num_pages)) == (16, 8)
    assert list(full.host.states) == [pb.PAGE_STATE_FREE]
    (holder,) = full.device.holders
    assert holder.request_id == "a"
    held = dict(zip(full.device.states, full.device.num_pages, strict=True))[pb.PAGE_STATE_HELD]
    assert held == len(holder.pages) == 2
    service.is_open.set()
    await task


async def test_flush_frees_what_is_cached(service: PaperService) -> None:
    service.is_open.set()
    await service.ask("a", [1, 2, 3, 4, 5])
    assert await service.client.flush() == 3
    assert await service.client.flush() == 0
    device = (await service.client.status()).workers[0].device
    assert (device.free, device.cached) == (16, 0)


async def test_a_drained_worker_gets_nothing_new_until_it_is_resumed(service: PaperService) -> None:
    (running,) = await service.ask_in_one_plan(("a", [1]))
    assert await service.client.drain_worker("w0") == 1
    assert await service.client.drain_worker("w0") == 1, "again is no mistake"
    assert (await service.client.status()).workers[0].state == pb.WORKER_STATE_DRAINING
    service.is_open.set()
    assert await running == answer([1], 8)
    waiting = service.ask("b", [2])
    await until(lambda: len(service.scheduler.loop.core.requests) == 1)
    (explained,) = await service.client.explain("b")
    assert explained.text.endswith(": w0 is draining")
    await service.client.resume_worker("w0")
    await service.client.resume_worker("w0")
    assert await waiting == answer([2], 8)


async def test_pins_are_set_listed_and_ended(service: PaperService) -> None:
    service.is_open.set()
    head = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert await service.client.pin("system", {"prompt_token_ids": head}) == 9
    assert [(p.name, p.salt, p.tokens, p.pages) for p in await service.client.list_pins()] == [("system", "", 9, 0)]
    await service.ask("a", [*head, 10])
    assert [p.pages for p in await service.client.list_pins()] == [2]
    await service.client.unpin("system")
    assert await service.client.list_pins() == []


async def test_what_cannot_be_done_has_a_status_and_a_sentence(service: PaperService) -> None:
    client = service.client
    for call in (client.drain_worker("w9"), client.resume_worker("w9"), client.page_maps("w9")):
        with pytest.raises(RequestError, match=r"^no worker named w9 is here$") as caught:
            await call
        assert caught.value.code == "NOT_FOUND"
    with pytest.raises(RequestError, match=r"^there is no pin named p$"):
        await client.unpin("p")
    with pytest.raises(InvalidRequest, match="a pin's name has 1 to 256 bytes"):
        await client.pin("", "text")
    with pytest.raises(InvalidRequest, match="token id 900 is outside the vocabulary"):
        await client.pin("p", {"prompt_token_ids": [900]})
    for number in range(MAX_PINS):
        await client.pin(str(number), {"prompt_token_ids": [1]})
    with pytest.raises(Overloaded, match=f"there are {MAX_PINS} pins already"):
        await client.pin("one more", {"prompt_token_ids": [1]})
    await client.pin("0", {"prompt_token_ids": [2]})


async def test_pins_have_a_limit_in_tokens_too_since_their_keys_are_computed_while_streams_wait(
    service: PaperService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_PINNED_TOKENS", 100)
    await service.client.pin("a", {"prompt_token_ids": [1] * 60})
    with pytest.raises(Overloaded, match="60 tokens are pinned already; 41 more would be above the limit of 100"):
        await service.client.pin("b", {"prompt_token_ids": [1] * 41})
    await service.client.pin("b", {"prompt_token_ids": [1] * 40})
    await service.client.pin("a", {"prompt_token_ids": [2] * 60})
    await service.client.unpin("b")
    assert [(p.name, p.tokens) for p in await service.client.list_pins()] == [("a", 60)]


async def test_of_many_requests_of_one_name_the_oldest_are_explained(service: PaperService) -> None:
    """Explaining all of thousands would hold up every stream for seconds."""
    answers = await service.ask_in_one_plan(*(("same", [number]) for number in range(MAX_EXPLANATIONS + 5)))
    ids = [each.id for each in await service.client.list_requests()]
    assert [each.id for each in await service.client.explain("same")] == ids[:MAX_EXPLANATIONS]
    service.is_open.set()
    await asyncio.gather(*answers)


async def test_a_question_that_fails_ends_neither_loop_nor_service(
    service: PaperService, caplog: pytest.LogCaptureFixture
) -> None:
    def spoil(core: Core, now: float) -> list[Output]:
        core.workers["w0"].device.refs[1] = None  # type: ignore[call-overload]
        return []

    def mend(core: Core, now: float) -> list[Output]:
        core.workers["w0"].device.refs[1] = 0
        return []

    service.is_open.set()
    service.scheduler.loop.post(spoil)
    with pytest.raises(ServerFault, match="its log says why"):
        await service.client.page_maps()
    service.scheduler.loop.post(mend)
    assert await service.ask("a", [1]) == answer([1], 8)


async def test_a_violation_is_logged_once_and_counted(service: PaperService, caplog: pytest.LogCaptureFixture) -> None:
    def leak(core: Core, now: float) -> list[Output]:
        core.workers["w0"].device.take(1)
        return []

    service.is_open.set()
    with caplog.at_level(logging.ERROR, "octavo.scheduler"):
        service.scheduler.loop.post(leak)
        await until(lambda: service.scheduler.loop.core.counters.audit_violations == 1)
        assert await service.ask("a", [1]) == answer([1], 8)
    status = await service.client.status()
    assert (status.counters.audit_violations, status.workers[0].device.quarantined) == (1, 1)
    (record,) = caplog.records
    assert "worker w0, device page 1 counts 1 references and has 0" in record.getMessage()
