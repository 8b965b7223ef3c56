"""Several answers to one prompt through real processes and a real (tiny) model."""

import asyncio
from collections.abc import Iterator

import pytest
from octavo_client import AsyncClient, SamplingParams
from octavo_client.results import Delta, End, RequestOutput

from tests.doubles.tiny_model import make_tiny_model
from tests.e2e.test_streams import assert_nothing_is_left
from tests.processes import serving

POOL = ("--page-size=4", "--pages=60", "--host-pages=40", "--max-slots=12", "--invariant", "--threads=1")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One request of four branches of 50 tokens nearly fills the pool: several at once preempt each other."""
    with serving(make_tiny_model(tmp_path_factory.mktemp("tiny") / "m"), worker=POOL) as address:
        yield address


def prompt(number: int) -> list[int]:
    return [(number * 31 + 7 * n) % 256 + 3 for n in range(9 + number)]


def params(n: int, temperature: float = 1.0, max_tokens: int = 40, **changes: object) -> SamplingParams:
    settings = {"ignore_eos": True, "seed": 11, **changes}
    return SamplingParams(n=n, temperature=temperature, max_tokens=max_tokens, **settings)  # type: ignore[arg-type]


def ids(output: RequestOutput) -> list[list[int]]:
    return [answer.token_ids for answer in output.outputs]


async def test_a_branch_says_the_same_alone_with_fewer_others_and_under_preemption(address: str) -> None:
    async with AsyncClient(address) as client:
        quiet = [ids(await client.generate(prompt(k), params(3))) for k in range(6)]
        assert all(len({tuple(answer) for answer in answers}) == 3 for answers in quiet), "branches go their own ways"
        assert ids(await client.generate(prompt(0), params(3))) == quiet[0]
        assert ids(await client.generate(prompt(0), params(1))) == quiet[0][:1]
        before = (await client.status()).counters
        crowded = await asyncio.gather(*(client.generate(prompt(k), params(3)) for k in range(6)))
        after = (await client.status()).counters
        assert after.swaps + after.drops > before.swaps + before.drops, "the pool is small enough to preempt"
        assert [ids(output) for output in crowded] == quiet
        await assert_nothing_is_left(client)


async def test_greedy_branches_are_all_equal(address: str) -> None:
    async with AsyncClient(address) as client:
        output = await client.generate(prompt(3), params(4, temperature=0.0))
        assert ids(output) == ids(output)[:1] * 4
        assert len(ids(output)[0]) == 40


@pytest.mark.parametrize("n", [2, 4, 8])
async def test_PA01_ten_whole_answers_have_exactly_n_outputs_each(address: str, n: int) -> None:
    """Branches end where the model says a byte that a sampled answer says sooner or later, or at the limit."""
    ends = params(n, max_tokens=30, stop_token_ids=list(range(40, 60)))
    async with AsyncClient(address) as client:
        outputs = await asyncio.gather(*(client.generate(prompt(k), ends) for k in range(10)))
        lengths = set()
        for output in outputs:
            assert [answer.index for answer in output.outputs] == list(range(n))
            assert all(answer.finish_reason in ("stop", "length") for answer in output.outputs)
            assert output.usage.completion_tokens == sum(map(len, ids(output)))
            lengths.add(tuple(map(len, ids(output))))
        assert any(len(set(each)) > 1 for each in lengths), "branches end at different steps"
        await assert_nothing_is_left(client)


async def test_PA02_streamed_branches_are_those_of_the_whole_answer(address: str) -> None:
    async with AsyncClient(address) as client:
        whole = await client.generate(prompt(2), params(2))
        events = [event async for event in client.stream(prompt(2), params(2))]
        for answer in whole.outputs:
            mine = [event for event in events if isinstance(event, Delta) and event.index == answer.index]
            assert [token for delta in mine for token in delta.token_ids] == answer.token_ids
            assert "".join(delta.text for delta in mine) == answer.text
        assert isinstance(events[-1], End)
        assert [(end.index, end.finish_reason) for end in events[-1].answers] == [(0, "length"), (1, "length")]
