"""Clients that do not read, vanish, or cancel by the thousand: nothing piles up, nothing stays held, nobody else waits."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from octavo.v1 import inference_pb2 as pb
from octavo.v1 import inference_pb2_grpc, step_pb2
from octavo_scheduler import endpoint, limits, outlet
from octavo_scheduler.model import ServedModel
from octavo_scheduler.transcript import MOST_UNREAD, TOKEN_BYTES

from tests.doubles.deaf_client import DATA, GOAWAY, PING, DeafClient
from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker, answer, column
from tests.patience import until

STREAM = "/octavo.v1.InferenceService/GenerateStream"
SLOTS = 256


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    worker = PaperWorker(page_size=16, pages=2_000, max_slots=SLOTS, max_step_tokens=512)
    async with paper_service(model, tmp_path, worker) as service:
        yield service


def request(prompt: list[int], max_tokens: int = 40, n: int = 1) -> Any:
    options = pb.GenerationOptions(
        sampling=pb.SamplingOptions(seed=0, n=n), stopping=pb.StoppingOptions(max_tokens=max_tokens, ignore_eos=True)
    )
    return pb.GenerateStreamRequest(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=prompt)), options=options)


def socket_of(service: PaperService) -> str:
    return service.scheduler.address.removeprefix("unix:")


class Buffers:
    """What is on its way to, or waits for, each reader; looked at after every step."""

    def __init__(self, service: PaperService, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self.most_in_flight = 0
        self._in_flight: dict[int, int] = {}
        write = outlet.Outlet.write

        async def counted(stream: outlet.Outlet, message: Any) -> None:
            self._in_flight[id(stream)] = message.ByteSize()
            self.most_in_flight = max(self.most_in_flight, message.ByteSize())
            await write(stream, message)
            self._in_flight[id(stream)] = 0

        monkeypatch.setattr(outlet.Outlet, "write", counted)
        self._service = service

    def look(self) -> None:
        for transcript in self._service.scheduler.front.live.values():
            for reader in transcript.readers:
                self.most = max(self.most, reader.num_unread * TOKEN_BYTES + self.most_in_flight)


async def test_GR04_of_200_streams_that_are_never_read_little_is_buffered_and_the_others_skip_no_step(
    service: PaperService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The deaf ones are asked for first; every step has a row for each of them and for each of the others, until all end."""
    buffers = Buffers(service, monkeypatch)
    core = service.scheduler.loop.core
    async with DeafClient(socket_of(service)) as deaf:
        streams = [deaf.ask(STREAM, request([number % 900, number // 900, 5])) for number in range(200)]
        await until(lambda: len(core.requests) == 200)
        others = [service.ask(f"r{number}", [number, 6], 40) for number in range(20)]
        await until(lambda: len(core.requests) == 220)
        service.is_open.set()
        asked = asyncio.gather(*others)
        while not asked.done():
            buffers.look()
            await asyncio.sleep(0.001)
        assert await asked == [answer([number, 6], 40) for number in range(20)]
        places = rows_by_prompt(service.process.plans)
        assert len(places) == 220
        for prompt, steps in places.items():
            assert steps == list(range(steps[0], steps[0] + 40)), f"{prompt} has a row in every step"
        assert all(kind != DATA for stream in streams for kind, _ in deaf.heard[stream])
        assert 0 < buffers.most <= limits.STREAM_BUFFER_BYTES
        assert not core.requests, "the core is done with all of them"
    await until(lambda: not service.scheduler.front.num_readers)
    assert caplog.text == "", "connections that break are nothing to complain about"


def rows_by_prompt(plans: Sequence[step_pb2.StepPlan]) -> dict[tuple[int, ...], list[int]]:
    """The steps in which each sequence, known by its prompt, has a row."""
    names: dict[int, tuple[int, ...]] = {}
    steps: dict[tuple[int, ...], list[int]] = {}
    for plan in plans:
        tokens = column(plan.new_slots.tokens, "<i4")
        for slot, length in zip(
            column(plan.new_slots.slot, "<u2"), column(plan.new_slots.num_tokens, "<i4"), strict=True
        ):
            names[slot], tokens = tuple(tokens[:length]), tokens[length:]
        for slot in column(plan.rows.slot, "<u2"):
            steps.setdefault(names[slot], []).append(plan.step)
    return steps


async def test_who_takes_no_message_for_too_long_is_cut_off_its_pages_are_free_and_it_is_told_when_it_reads(
    service: PaperService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STALLED_SECONDS", 0.3)
    core = service.scheduler.loop.core
    async with DeafClient(socket_of(service)) as deaf:
        stream = deaf.ask(STREAM, request([1, 2, 3], 1_000))
        await until(lambda: bool(core.workers["w0"].running))
        service.is_open.set()
        await until(lambda: any(t.num_tokens for t in service.scheduler.front.live.values()))
        service.is_open.clear()
        await until(lambda: core.counters.cancelled == 1)
        assert not core.workers["w0"].device.num_held
        assert not service.scheduler.front.live
        deaf.listen(stream)
        await until(lambda: any(b"grpc-status\x018" in content for _, content in deaf.heard[stream]))
        assert b"the stream was not read for too long; ask again with resume_from" in deaf.heard[stream][-1][1]


async def test_who_leaves_more_behind_than_the_buffer_holds_is_cut_off_at_once(
    service: PaperService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo_scheduler.transcript.MOST_UNREAD", 50)
    core = service.scheduler.loop.core
    service.is_open.set()
    async with DeafClient(socket_of(service)) as deaf:
        deaf.ask(STREAM, request([1, 2, 3], 4_000))
        await until(lambda: core.counters.cancelled == 1)
        await until(lambda: not core.workers["w0"].device.num_held)


def test_the_buffer_is_half_a_message_and_half_tokens_that_wait() -> None:
    assert MOST_UNREAD * TOKEN_BYTES * 2 == limits.STREAM_BUFFER_BYTES


async def test_a_slow_reader_gets_what_it_missed_in_one_piece(service: PaperService) -> None:
    core = service.scheduler.loop.core
    async with DeafClient(socket_of(service)) as deaf:
        stream = deaf.ask(STREAM, request([1, 2, 3], 60))
        await until(lambda: bool(core.workers["w0"].running))
        service.is_open.set()
        await until(lambda: not core.requests)
        deaf.listen(stream)
        await until(lambda: any(b"grpc-status" in content for _, content in deaf.heard[stream]))
        events = [pb.GenerateStreamResponse.FromString(message) for message in deaf.messages(stream)]
    deltas = [event.delta for event in events if event.delta.token_ids]
    assert [token for delta in deltas for token in delta.token_ids] == answer([1, 2, 3], 60)
    assert len(deltas) <= 2, "one that was there before the first message was stuck, and one for all the rest"


async def test_CA08_a_thousand_streams_cancelled_back_to_back_hold_nothing_and_the_next_is_served(
    service: PaperService,
) -> None:
    """The worker keeps its result while all are cancelled; with the results of the plans in flight all pages are free."""
    core = service.scheduler.loop.core
    calls = [service.stub.GenerateStream(request([number % 900, number // 900], 50)) for number in range(1000)]
    await until(lambda: len(core.requests) == 1000)
    await until(lambda: len(core.workers["w0"].in_flight) == 2)
    for call in calls:
        call.cancel()
    await until(lambda: not core.requests)
    device = core.workers["w0"].device
    assert device.num_held == 0
    assert not core.waiting
    assert len(core.workers["w0"].in_flight) == 2, "no step was needed for that"
    assert device.num_fenced > 0
    planned = len(service.process.plans)
    service.is_open.set()
    await until(lambda: not device.num_fenced)
    assert len(service.process.plans) <= planned + 2
    assert await service.ask("next", [4, 2]) == answer([4, 2], 8)
    assert core.counters.cancelled == 1000
    assert not service.scheduler.front.live


@pytest.mark.parametrize("how", ["cancel", "deadline", "connection"])
async def test_whichever_way_a_client_goes_its_pages_are_released_before_the_next_plan(
    service: PaperService, how: str
) -> None:
    core = service.scheduler.loop.core
    channel = grpc.aio.insecure_channel(service.scheduler.address, options=[("grpc.use_local_subchannel_pool", 1)])
    stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
    call = stub.GenerateStream(request([1, 2, 3], 200), timeout=0.5 if how == "deadline" else None)
    await until(lambda: bool(core.workers["w0"].running))
    if how == "cancel":
        call.cancel()
    elif how == "connection":
        await channel.close()
    await until(lambda: not core.requests)
    assert core.workers["w0"].device.num_held == 0
    step = core.workers["w0"].step
    service.is_open.set()
    await until(lambda: not core.workers["w0"].device.num_fenced)
    assert core.workers["w0"].step <= step + 1
    await channel.close()


async def test_GR02_a_client_whose_network_went_away_without_a_word_is_noticed_and_its_pages_are_free(
    model: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deaf client answers no ping. The worker says nothing meanwhile, so that nothing is written to it either."""
    kept = dict(endpoint.SERVER_OPTIONS)
    names = "grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"
    assert {kept[name] for name in names} == {10_000}
    brief = dict.fromkeys(names, 300)
    monkeypatch.setattr(endpoint, "SERVER_OPTIONS", list((kept | brief).items()))
    async with paper_service(model, tmp_path, PaperWorker(page_size=16, pages=64)) as service:
        core = service.scheduler.loop.core
        async with DeafClient(socket_of(service)) as deaf:
            deaf.ask(STREAM, request([1, 2, 3], 200))
            await until(lambda: bool(core.workers["w0"].running))
            await until(lambda: not core.requests)
            assert core.workers["w0"].device.num_held == 0
            assert core.counters.cancelled == 1
            assert PING in [kind for kind, _ in deaf.heard[0]]


async def test_GR06_who_pings_much_more_often_than_anybody_should_is_not_sent_away(service: PaperService) -> None:
    """Between the tokens of a slow step, when nothing else is said on the connection."""
    async with DeafClient(socket_of(service)) as client:
        stream = client.ask(STREAM, request([1, 2, 3], 20))
        await until(lambda: bool(service.scheduler.loop.core.workers["w0"].running))
        for number in range(1, 21):
            client.ping()
            await until(lambda number=number: [k for k, _ in client.heard[0]].count(PING) >= number)  # type: ignore[misc]
        assert GOAWAY not in [kind for kind, _ in client.heard[0]]
        client.listen(stream)
        service.is_open.set()
        await until(lambda: any(b"grpc-status\x010" in content for _, content in client.heard.get(stream, [])))
