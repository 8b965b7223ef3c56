"""Constrained answers through real processes: valid, the same on a pool that is too small, and when the helper is killed."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psutil
import pytest
from octavo_client import AsyncClient, SamplingParams
from octavo_client.errors import InvalidRequest
from octavo_client.results import Delta
from octavo_scheduler.matching.grammars import Grammars
from octavo_scheduler.model import load_model

from benchmarks.structured.schemas import schema
from tests.doubles.tiny_model import make_tiny_model
from tests.processes import serving

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "ok": {"type": "boolean"}, "in": {"enum": ["a", "é"]}},
    "required": ["name", "ok", "in"],
    "additionalProperties": False,
}
ROOMY, TIGHT = ("--pages=512", "--host-pages=64"), ("--pages=24", "--host-pages=24")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "m", layers=1)


@contextmanager
def served(model: Path, pool: Sequence[str], *flags: str) -> Iterator[str]:
    with serving(model, worker=("--device=cpu", "--max-slots=16", *pool), scheduler=flags) as address:
        yield address


def params(number: int) -> SamplingParams:
    return SamplingParams(json_schema=SCHEMA, max_tokens=80, temperature=1.0, seed=number, n=2)


async def answers(client: AsyncClient) -> list[list[tuple[str, str | None]]]:
    outputs = await asyncio.gather(*(client.generate(f"person {number}", params(number)) for number in range(10)))
    return [[(answer.text, answer.finish_reason) for answer in output.outputs] for output in outputs]


async def test_answers_satisfy_their_schema_and_are_the_same_on_a_pool_that_is_too_small(model: Path) -> None:
    with served(model, ROOMY) as address:
        async with AsyncClient(address) as client:
            expected = await answers(client)
    for text, reason in (answer for both in expected for answer in both):
        if reason == "stop":
            said = json.loads(text)
            assert said.keys() == {"name", "ok", "in"}
            assert (len(said["name"]) <= 9, type(said["ok"]), said["in"] in ("a", "é")) == (True, bool, True)
    assert sum(reason == "stop" for both in expected for _, reason in both) >= 10
    with served(model, TIGHT) as address:
        async with AsyncClient(address) as client:
            assert await answers(client) == expected
            counters = (await client.status()).counters
            assert counters.swaps + counters.drops > 0, "the pool is small enough to preempt"


def helpers() -> list[psutil.Process]:
    """Processes that match for the scheduler, which is a child of this one."""
    schedulers = [p for p in psutil.Process().children() if "octavo_scheduler" in p.cmdline()]
    found = [c for scheduler in schedulers for c in scheduler.children() if "octavo_scheduler.matching" in c.cmdline()]
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]


async def test_each_kind_keeps_its_word_and_a_helper_that_is_killed_changes_nothing(model: Path) -> None:
    letters = SamplingParams(regex="[a-d]{150}", max_tokens=400, temperature=1.0, seed=3)
    with served(model, ROOMY) as address:
        async with AsyncClient(address) as client:
            assert await one(client, SamplingParams(choice=["yes", "no (x)"])) in ("yes", "no (x)")
            assert re.fullmatch("a[0-9]b", await one(client, SamplingParams(grammar='start: "a" /[0-9]/ "b"')))
            with pytest.raises(InvalidRequest, match="unclosed group"):
                await one(client, SamplingParams(regex="("))
            expected = await one(client, letters)
            assert re.fullmatch("[a-d]{150}", expected)
            text, is_killed = "", False
            async for event in client.stream("x", letters):
                if isinstance(event, Delta):
                    text += event.text
                    if len(text) > 20 and not is_killed:
                        is_killed = True
                        for helper in helpers():
                            helper.kill()
            assert is_killed
            assert text == expected
            held = await client.generate("x", SamplingParams(regex="[a-d]{9}", max_tokens=50, seed=3))
            assert held.outputs[0].finish_reason == "stop"


async def one(client: AsyncClient, params: SamplingParams) -> str:
    """An answer that ended by itself."""
    (answer,) = (await client.generate("x", params)).outputs
    assert answer.finish_reason == "stop"
    return answer.text


def test_a_share_of_the_random_schemas_is_made_of_what_the_library_knows(model: Path) -> None:
    made = load_model(model)
    grammars = Grammars(made.vocabulary.tokenizer.to_str(), made.vocab_size, sorted(made.end_token_ids))
    asked = [[number, "json_schema", json.dumps(schema(Random(number))), []] for number in range(40)]
    head, _ = grammars.answer({"begin": asked})
    assert head["errors"] == []
    assert head["masks"] == list(range(40))
