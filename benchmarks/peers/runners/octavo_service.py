"""Octavo through gRPC: scheduler, worker, and this program as their client. Arguments: a model, flags of the worker."""

import asyncio
import sys
from pathlib import Path

from octavo_client import AsyncClient
from octavo_client.local import LocalServer

from benchmarks.peers.runners.protocol import Request, serve, take_stdout
from benchmarks.service import NO_PREFIX_CACHE, serve_all
from benchmarks.workload import Work


def main() -> None:
    answers = take_stdout()
    model, *flags = sys.argv[1:]
    with (
        LocalServer(Path(model), worker_flags=flags, scheduler_flags=[NO_PREFIX_CACHE]) as server,
        asyncio.Runner() as loop,
    ):
        client = loop.run(connected(server.address))

        def run(work: list[Request]) -> tuple[float, list[list[int]]]:
            served = loop.run(serve_all(client, [Work(*request) for request in work]))
            return served.seconds, served.ids

        serve(answers, {"engine": "Octavo", "kernels": loop.run(kernels(client))}, run)
        loop.run(client.close())


async def connected(address: str) -> AsyncClient:
    """A client belongs to the loop that it is made in."""
    return AsyncClient(address)


async def kernels(client: AsyncClient) -> str:
    (worker,) = (await client.status()).workers
    return worker.kernels


if __name__ == "__main__":
    main()
