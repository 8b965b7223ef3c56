"""The deployment without containers: images installed into clean environments, then started as Compose would."""

import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import zmq
from octavo.v1 import inference_pb2, inference_pb2_grpc
from zmq.auth import load_certificate
from zmq.utils.monitor import recv_monitor_message

from tests.deploy.compose import resolve
from tests.deploy.images import ROOT, build, copy_context, environment_stage, install_lines, read_stages
from tests.deploy.rehearsal import Rehearsal, free_port
from tests.doubles.tiny_model import make_tiny_model
from tests.patience import PATIENCE

pytestmark = pytest.mark.timeout(1500)  # installs torch

SECRETS = {"scheduler/scheduler.key_secret", "scheduler/tls.key", "scheduler/token", "scheduler/admin-token"}
SECRETS |= {"worker/worker.key_secret", "client/token", "client/tls.key", "admin/token", "admin/tls.key"}
PUBLIC = {"scheduler/scheduler.key", "scheduler/allow/worker.key", "scheduler/tls.crt", "scheduler/client-ca.crt"}
PUBLIC |= {
    "worker/worker.key",
    "worker/scheduler.key",
    "client/ca.crt",
    "client/tls.crt",
    "admin/ca.crt",
    "admin/tls.crt",
}

pytestmark = pytest.mark.on_demand


@pytest.fixture(scope="module")
def rehearsal() -> Iterator[Rehearsal]:
    with tempfile.TemporaryDirectory() as name:  # pytest's own would stay, and torch is large
        folder = Path(name)
        scheduler = build(ROOT / "deploy/Dockerfile.scheduler", "", folder / "scheduler")
        worker = build(ROOT / "deploy/Dockerfile.worker", "worker", folder / "worker")
        yield Rehearsal(
            services=resolve(OCTAVO_KV_CACHE="4MiB")["services"],
            environments={"keys": scheduler, "scheduler": scheduler, "worker": worker},
            keys=folder / "keys",
            model=make_tiny_model(folder / "model"),
            step_port=free_port(),
        )


@pytest.fixture(scope="module")
def address(rehearsal: Rehearsal) -> Iterator[str]:
    with rehearsal.up(workers=2) as address:
        yield address


def tiny_request() -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(prompt=inference_pb2.Prompt(text="A sheet folded thrice"))
    request.options.sampling.temperature = 0
    request.options.stopping.max_tokens = 8
    request.options.stopping.ignore_eos = True
    return request


def test_the_scheduler_image_has_no_torch(rehearsal: Rehearsal) -> None:
    freeze = rehearsal.run("scheduler", ["python", "-m", "pip", "freeze"])
    installed = {line.partition("=")[0].partition(" ")[0].lower() for line in freeze.stdout.splitlines()}
    assert {"grpcio", "octavo", "pyzmq"} <= installed
    assert installed.isdisjoint({"torch", "transformers", "triton"})


def test_the_install_line_of_the_gpu_image_can_be_satisfied(tmp_path: Path) -> None:
    """Resolved, but not installed: it is several gigabytes."""
    copy_context(tmp_path)
    stages = read_stages((ROOT / "deploy/Dockerfile.worker").read_text())
    for line in install_lines(environment_stage(stages, "worker-gpu"), tmp_path / "environment"):
        dry = line.replace("pip install", "pip install --dry-run")
        assert dry != line
        result = subprocess.run(dry, shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert " triton-" in result.stdout


def test_each_party_gets_its_own_keys_and_secrets_are_for_their_owner_only(rehearsal: Rehearsal) -> None:
    rehearsal.make_keys()
    files = {str(path.relative_to(rehearsal.keys)): path for path in rehearsal.keys.rglob("*") if path.is_file()}
    assert set(files) == SECRETS | PUBLIC
    assert {name for name in SECRETS if files[name].stat().st_mode & 0o077} == set()


def test_volumes_are_filled_and_not_replaced(rehearsal: Rehearsal, tmp_path: Path) -> None:
    fresh = dataclasses.replace(rehearsal, keys=tmp_path)
    volumes = [tmp_path / name for name in ("scheduler", "worker", "client")]
    for volume in volumes:
        volume.mkdir()
    before = [volume.stat().st_ino for volume in volumes]
    fresh.make_keys()
    assert [volume.stat().st_ino for volume in volumes] == before
    assert (tmp_path / "client/token").read_text() == (tmp_path / "scheduler/token").read_text()


def test_making_keys_again_changes_nothing_and_lets_no_worker_back_in(rehearsal: Rehearsal, tmp_path: Path) -> None:
    again = dataclasses.replace(rehearsal, keys=tmp_path)
    again.make_keys()
    (tmp_path / "scheduler/allow/worker.key").unlink()
    before = contents(tmp_path)
    again.make_keys()
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_client_with_certificate_and_token_gets_an_answer(rehearsal: Rehearsal, address: str) -> None:
    with rehearsal.channel(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        answer = stub.Generate(tiny_request(), timeout=PATIENCE, metadata=rehearsal.client_metadata())
    assert answer.usage.completion_tokens == 8


def test_the_documented_command_gets_an_answer(rehearsal: Rehearsal, address: str) -> None:
    """The one of docs/how-to/deploy-with-compose.md."""
    place = address.replace("127.0.0.1", "localhost")
    options = ["--address", place, "--ca-file", str(rehearsal.keys / "client/ca.crt"), "--max-tokens", "8"]
    options += ["--token-file", str(rehearsal.keys / "client/token")]
    octavo = str(Path(sys.executable).with_name("octavo"))
    result = subprocess.run([octavo, "complete", *options, "The capital of France is"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_a_client_without_the_token_is_turned_away(rehearsal: Rehearsal, address: str) -> None:
    with rehearsal.channel(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Generate(tiny_request(), timeout=PATIENCE)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def handshake(port: int, keys: tuple[bytes, bytes], server_key: bytes) -> int:
    """Dial the scheduler's worker socket with a CURVE key pair; the event that says how the handshake ended."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.curve_publickey, dealer.curve_secretkey = keys
        dealer.curve_serverkey = server_key
        ends = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        with dealer.get_monitor_socket(ends) as monitor:
            dealer.connect(f"tcp://127.0.0.1:{port}")
            assert monitor.poll(60_000)
            event: int = recv_monitor_message(monitor)["event"]
            dealer.disable_monitor()
    return event


@pytest.mark.usefixtures("address")
def test_only_a_worker_with_a_key_of_the_allow_list_gets_through(rehearsal: Rehearsal) -> None:
    server_key, _ = load_certificate(rehearsal.keys / "worker/scheduler.key")
    public, secret = load_certificate(rehearsal.keys / "worker/worker.key_secret")
    assert secret is not None
    assert handshake(rehearsal.step_port, (public, secret), server_key) == zmq.EVENT_HANDSHAKE_SUCCEEDED
    assert handshake(rehearsal.step_port, zmq.curve_keypair(), server_key) == zmq.EVENT_HANDSHAKE_FAILED_AUTH


def test_the_health_check_of_the_container_passes(rehearsal: Rehearsal, address: str) -> None:
    command = rehearsal.services["scheduler"]["healthcheck"]["test"]
    assert command[0] == "CMD"
    result = rehearsal.run("scheduler", rehearsal.moved("scheduler", command[1:], address))
    assert result.returncode == 0, result.stderr


def test_the_health_check_fails_where_nobody_listens(rehearsal: Rehearsal) -> None:
    rehearsal.make_keys()
    command = rehearsal.services["scheduler"]["healthcheck"]["test"]
    result = rehearsal.run("scheduler", rehearsal.moved("scheduler", command[1:], f"127.0.0.1:{free_port()}"))
    assert result.returncode == 1
    assert "UNAVAILABLE" in result.stderr
