"""Which requests a load makes, and when."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from octavo_client.bench.load import Load, Plan, Span
from octavo_client.errors import ConfigError, Overloaded
from octavo_client.params import SamplingParams
from octavo_client.results import Delta, Event


class Server:
    """Notes what it is asked; answers a token when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], SamplingParams]] = []
        self.alive = self.most_alive = 0
        self.is_full = False
        self.num_awaited = 0
        """Nobody gets an answer before so many have asked."""
        self._all_there = asyncio.Event()

    async def ask(self, ids: list[int], params: SamplingParams) -> AsyncGenerator[Event]:
        self.asked.append((ids, params))
        if self.is_full:
            raise Overloaded("full")
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        if len(self.asked) >= self.num_awaited:
            self._all_there.set()
        await self._all_there.wait()
        await asyncio.sleep(0)
        yield Delta(index=0, text="a", token_ids=[1], first_index=0)
        self.alive -= 1


def plan(**changes: object) -> Plan:
    fields = {
        "requests": 20,
        "rate": None,
        "concurrency": 3,
        "prompt": Span(5, 9),
        "answer": Span(2, 4),
        "vocab_size": 50,
        **changes,
    }
    return Plan(**fields)  # type: ignore[arg-type]


async def test_a_closed_loop_keeps_so_many_requests_alive() -> None:
    server = Server()
    recordings = await Load(plan(), server.ask).run()
    assert (server.most_alive, server.alive, len(recordings)) == (3, 0, 20)
    assert [sum(count for _, count in each.arrivals) for each in recordings] == [1] * 20


async def test_an_open_loop_waits_for_nobody() -> None:
    server = Server()
    server.num_awaited = 20
    await Load(plan(rate=1e9), server.ask).run()
    assert server.most_alive == 20


async def test_lengths_lie_in_their_spans_and_a_seed_gives_the_same_load_again() -> None:
    servers = [Server(), Server(), Server()]
    for server, seed in zip(servers, (1, 1, 2), strict=True):
        await Load(plan(seed=seed), server.ask).run()
    first, again, other = (server.asked for server in servers)
    assert first == again
    assert first != other
    assert {len(ids) for ids, _ in first} == {5, 6, 7, 8, 9}
    assert {params.max_tokens for _, params in first} == {2, 3, 4}
    assert all(3 <= token < 50 for ids, _ in first for token in ids)


async def test_a_request_that_fails_is_part_of_the_figures() -> None:
    server = Server()
    server.is_full = True
    recordings = await Load(plan(requests=2), server.ask).run()
    assert [each.error for each in recordings] == ["full", "full"]


@pytest.mark.parametrize("text", ["", "a", "0", "5-3", "-5", "5-"])
def test_a_span_that_is_none_is_refused(text: str) -> None:
    if text == "5-":
        assert Span.read(text) == Span(5, 5)
    else:
        with pytest.raises(ConfigError, match=r"tokens"):
            Span.read(text)
