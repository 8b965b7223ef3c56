"""A client on a host of its own: `caller.py ADDRESS KEYS N` streams N answers, says when all run, and prints them."""

import asyncio
import json
import sys
from pathlib import Path

from octavo_client import AsyncClient, SamplingParams
from octavo_client.results import Delta

UNDER_WAY = 100
PARAMS = SamplingParams(max_tokens=1500, temperature=0, ignore_eos=True)


async def main(address: str, keys: Path, count: int) -> None:
    counts, everywhere = [0] * count, asyncio.Event()

    async def one(number: int, client: AsyncClient) -> list[int]:
        tokens: list[int] = []
        async for event in client.stream([number + 3, 5, 7], PARAMS):
            if isinstance(event, Delta):
                tokens += event.token_ids
                counts[number] = len(tokens)
            if min(counts) >= UNDER_WAY and not everywhere.is_set():
                everywhere.set()
                print("under way", flush=True)
        return tokens

    async with AsyncClient(address, ca_file=keys / "ca.crt", token_file=keys / "token") as client:
        print(json.dumps(await asyncio.gather(*(one(number, client) for number in range(count)))))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
