"""Servers that foreign clients talk to, and the matrix: what each test asserts of which client, at which version."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from octavo.v1 import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc
from octavo_scheduler.keys import main as make_keys

from tests.doubles.tiny_model import make_tiny_model
from tests.models import smollm2
from tests.patience import PATIENCE
from tests.processes import module, running, serving, wait_until_serving

PROMPT = "Who folds a sheet into sixteen pages?"
MAX_TOKENS = 24
WHOLE_CONTEXT = 60_000
"""Tokens of an answer that nobody waits for."""

Note = Callable[[str, str, str], None]


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Note:
    """Call it with a client, its version and what the test asserts of it; `make foreign` makes a table of that."""

    def write(client: str, version: str, asserted: str) -> None:
        record_property("client", f"{client}\t{version}\t{asserted}")

    return write


@dataclass(frozen=True)
class Server:
    """Where one listens, and what an operator sees of it."""

    address: str

    def status(self) -> admin_pb2.GetStatusResponse:
        with grpc.insecure_channel(self.address) as channel:
            admin: Any = admin_pb2_grpc.AdminServiceStub(channel)
            status: admin_pb2.GetStatusResponse = admin.GetStatus(admin_pb2.GetStatusRequest(), timeout=PATIENCE)
        return status

    def drain(self) -> None:
        """New requests wait."""
        self._order("DrainWorker", admin_pb2.DrainWorkerRequest(worker_id=self.status().workers[0].worker_id))

    def resume(self) -> None:
        self._order("ResumeWorker", admin_pb2.ResumeWorkerRequest(worker_id=self.status().workers[0].worker_id))

    def _order(self, method: str, request: object) -> None:
        with grpc.insecure_channel(self.address) as channel:
            getattr(admin_pb2_grpc.AdminServiceStub(channel), method)(request, timeout=PATIENCE)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a few kilobytes, with room for an answer that takes long."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), max_context=1 << 16)


@pytest.fixture(scope="session")
def server(tiny_model: Path) -> Iterator[Server]:
    """A real scheduler and worker."""
    with serving(tiny_model, worker=("--device=cpu", "--pages=5000")) as address:
        yield Server(address)


@pytest.fixture(scope="session")
def address(server: Server) -> str:
    return server.address


@pytest.fixture(scope="session")
def expected(address: str) -> str:
    """The greedy answer, got by Octavo's own stubs in one piece."""
    request = inference_pb2.GenerateRequest(prompt=inference_pb2.Prompt(text=PROMPT))
    request.options.sampling.temperature = 0
    request.options.stopping.max_tokens = MAX_TOKENS
    with grpc.insecure_channel(address) as channel:
        stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        answer: inference_pb2.GenerateResponse = stub.Generate(request, timeout=PATIENCE)
    assert answer.usage.completion_tokens > 0
    return answer.completions[0].text


@dataclass(frozen=True)
class Guarded:
    """A server with TLS and tokens; `keys` are what `octavo keys` made for it."""

    address: str
    keys: Path


@pytest.fixture(scope="session")
def guarded(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    keys = tmp_path_factory.mktemp("keys")
    make_keys([str(keys)])
    own, steps = keys / "scheduler", f"ipc://{keys}/steps"
    files = {"tls-cert": "tls.crt", "tls-key": "tls.key", "token-file": "token", "admin-token-file": "admin-token"}
    secrets = [f"--{flag}={own / name}" for flag, name in files.items()]
    scheduler = module(
        "octavo_scheduler", f"--model={tiny_model}", "--listen=127.0.0.1:0", f"--workers={steps}", *secrets
    )
    worker = module("octavo_worker", f"--model={tiny_model}", f"--scheduler={steps}", "--device=cpu", "--pages=256")
    trust = grpc.ssl_channel_credentials((keys / "client" / "ca.crt").read_bytes())
    bearer = (("authorization", f"Bearer {(keys / 'client' / 'token').read_text().strip()}"),)
    with running(scheduler, ready=r"serving .* on ([\d.]+:\d+)") as match, running(worker, ready="joined"):
        with grpc.secure_channel(match[1], trust) as channel:
            wait_until_serving(channel, bearer)
        yield Guarded(match[1], keys)


@pytest.fixture(scope="session")
def real_address() -> Iterator[str]:
    """A server of the real small model."""
    with serving(smollm2(), scheduler=("--served-model-name=smollm2",)) as address:
        yield address
