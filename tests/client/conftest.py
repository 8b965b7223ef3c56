"""Servers for the client's tests: one inside the test's event loop, one as processes of this machine."""

from collections.abc import AsyncIterator, Iterator

import pytest
from octavo_client.local import LocalServer, Programs

from tests.client.programs import SCHEDULER, WORKER
from tests.doubles.inference_server import InferenceServer


@pytest.fixture
async def server() -> AsyncIterator[InferenceServer]:
    double = InferenceServer()
    await double.start()
    yield double
    await double.stop()


@pytest.fixture(scope="session")
def programs() -> Programs:
    return Programs(scheduler=SCHEDULER, worker=WORKER)


@pytest.fixture(scope="session")
def local_server(programs: Programs) -> Iterator[LocalServer]:
    with LocalServer("model", programs=programs) as running:
        yield running
