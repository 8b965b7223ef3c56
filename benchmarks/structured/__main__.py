"""Random schemas, and prompts that ask for them, on a real model: valid answers, their pace, and what disturbs them.

schemas        every answer that ended by stop must satisfy its schema (judged by the library jsonschema)
pace           tokens of 32 streams that follow a schema against 32 streams of free text, in turns, on one server
disturbances   the same requests on a pool that is too small (swap, drop), and with one of two workers killed
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import jsonschema
from octavo_client import AsyncClient, SamplingParams
from octavo_client.default_model import find_default_model
from octavo_client.local import LocalServer
from octavo_client.results import CompletionOutput, Delta

from benchmarks.machine import machine
from benchmarks.structured.schemas import Schema, schema

STREAMS = 32
MOST_TOKENS = 400
PACE_TOKENS = 96
PACE_ROUNDS = 5
DISTURBED = 24
TOPICS = ("a person", "a shop", "a house for sale", "a bicycle", "a hotel room", "an order", "a city", "a book")


def prompt(number: int, asked: Schema) -> str:
    topic = TOPICS[number % len(TOPICS)]
    return f"Describe {topic} as a JSON object with {', '.join(asked['properties'])}:\n"


def params(number: int, asked: Schema) -> SamplingParams:
    """Every third one is greedy."""
    temperature = 0.0 if number % 3 == 0 else 0.7
    return SamplingParams(json_schema=asked, max_tokens=MOST_TOKENS, temperature=temperature, top_p=0.95, seed=number)


async def answers(client: AsyncClient, schemas: Sequence[Schema]) -> list[CompletionOutput]:
    """To all of them, so many at once."""
    places = asyncio.Semaphore(STREAMS)

    async def answer(number: int, asked: Schema) -> CompletionOutput:
        async with places:
            return (await client.generate(prompt(number, asked), params(number, asked))).outputs[0]

    return list(await asyncio.gather(*(answer(number, asked) for number, asked in enumerate(schemas))))


def is_valid(asked: Schema, text: str) -> bool:
    try:
        jsonschema.validate(json.loads(text), asked)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def judged(schemas: Sequence[Schema], outputs: Sequence[CompletionOutput]) -> dict[str, Any]:
    stopped = [
        (asked, output) for asked, output in zip(schemas, outputs, strict=True) if output.finish_reason == "stop"
    ]
    invalid = [(asked, output.text) for asked, output in stopped if not is_valid(asked, output.text)]
    for asked, text in invalid:
        print(f"not valid: {text!r} of {json.dumps(asked)}", file=sys.stderr)
    return {
        "schemas": len(schemas),
        "stopped": len(stopped),
        "stopped_share": round(len(stopped) / len(schemas), 4),
        "invalid": len(invalid),
        "tokens": sum(len(output.token_ids) for output in outputs),
    }


async def gaps(client: AsyncClient, settings: SamplingParams) -> list[float]:
    """Seconds between tokens of one stream, once all streams run, on 32 streams at once: of each stream the mean."""

    async def stream(number: int) -> float:
        times: list[float] = []
        async for event in client.stream(f"{number}. A list of things:\n", settings):
            if isinstance(event, Delta):
                times += [time.perf_counter()] * len(event.token_ids)
        return (times[-1] - times[8]) / (len(times) - 9)

    return list(await asyncio.gather(*(stream(number) for number in range(STREAMS))))


async def pace(client: AsyncClient) -> dict[str, Any]:
    """In turns, so that what else the machine does meets both."""
    things = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 40}, "count": {"type": "integer"}},
    }
    long = {"type": "array", "items": {**things, "required": ["name", "count"]}, "minItems": PACE_TOKENS}
    free = SamplingParams(max_tokens=PACE_TOKENS, temperature=0.7, seed=1, ignore_eos=True)
    constrained = SamplingParams(max_tokens=PACE_TOKENS, temperature=0.7, seed=1, json_schema=long)
    found: dict[str, list[float]] = {"free": [], "constrained": []}
    for round_number in range(1 + PACE_ROUNDS):  # the first warms up
        for name, settings in (("free", free), ("constrained", constrained)):
            measured = median(await gaps(client, settings))
            if round_number:
                found[name].append(measured)
    ratios = [mine / plain for mine, plain in zip(found["constrained"], found["free"], strict=True)]
    return {
        "streams": STREAMS,
        "free_ms": round(1000 * median(found["free"]), 2),
        "constrained_ms": round(1000 * median(found["constrained"]), 2),
        "ratio": round(median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


async def ask(address: str, schemas: Sequence[Schema], kill: Any = None) -> tuple[list[list[int]], Any]:
    """Ids of all answers, and the counters afterwards. `kill` is called in between, once a part has been said."""
    async with AsyncClient(address) as client:
        task = asyncio.ensure_future(answers(client, schemas))
        while kill is not None and (await client.status()).counters.generated_tokens < 200:
            await asyncio.sleep(0.01)
        if kill is not None:
            kill()
        return [output.token_ids for output in await task], (await client.status()).counters


def disturbances(model: Path, schemas: Sequence[Schema]) -> dict[str, Any]:
    figures: dict[str, Any] = {"requests": len(schemas)}
    with LocalServer(model, worker_flags=("--pages=4000",)) as server:
        expected, _ = asyncio.run(ask(server.address, schemas))
    for how in ("swap", "drop"):
        flags = ("--pages=30", "--host-pages=200")
        with LocalServer(model, worker_flags=flags, scheduler_flags=(f"--preempt={how}",)) as server:
            ids, counters = asyncio.run(ask(server.address, schemas))
        figures[how] = {"preemptions": counters.swaps + counters.drops, "different": different(ids, expected)}
    with LocalServer(model, workers=2, worker_flags=("--pages=4000", "--threads=1")) as server:
        ids, counters = asyncio.run(ask(server.address, schemas, server.children[1].kill))
    figures["kill"] = {"workers_lost": counters.workers_lost, "different": different(ids, expected)}
    return figures


def different(ids: list[list[int]], expected: list[list[int]]) -> int:
    return sum(mine != theirs for mine, theirs in zip(ids, expected, strict=True))


async def undisturbed(address: str, schemas: Sequence[Schema]) -> dict[str, Any]:
    async with AsyncClient(address) as client:
        return {**judged(schemas, await answers(client, schemas)), "pace": await pace(client)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    model = options.model or find_default_model()
    schemas = [schema(Random(number)) for number in range(options.schemas)]
    with LocalServer(model, worker_flags=("--pages=4000",)) as server:
        figures = asyncio.run(undisturbed(server.address, schemas))
    figures["disturbed"] = disturbances(model, schemas[:DISTURBED])
    print(json.dumps({"target": "structured-check", **figures, **machine()}))
    wrong = sum(figures["disturbed"][how]["different"] for how in ("swap", "drop", "kill"))
    idle = not all(figures["disturbed"][how]["preemptions"] for how in ("swap", "drop"))
    return int(figures["invalid"] > 0 or wrong > 0 or idle or figures["stopped_share"] < 0.95)


if __name__ == "__main__":
    sys.exit(main())
