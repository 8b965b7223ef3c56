"""Programs that share no code with Octavo talk to it: a Node client, and buf curl by reflection."""

import json
import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from octavo.v1 import inference_pb2, inference_pb2_grpc

from tests.foreign.conftest import NODE_CLIENT

PROMPT = "Who folds a sheet into sixteen pages?"
MAX_TOKENS = 24


@pytest.fixture(scope="module")
def expected(address: str) -> str:
    """The greedy answer, got by Octavo's own stubs in one piece."""
    request = inference_pb2.GenerateRequest(prompt=inference_pb2.Prompt(text=PROMPT))
    request.options.sampling.temperature = 0
    request.options.stopping.max_tokens = MAX_TOKENS
    with grpc.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        answer: inference_pb2.GenerateResponse = stub.Generate(request, timeout=60)
    assert answer.usage.completion_tokens > 0
    return answer.completions[0].text


def run_node(node_modules: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["node", str(NODE_CLIENT / "client.js"), *arguments]
    environment = {**os.environ, "NODE_PATH": str(node_modules)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)


def run_buf_curl(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    buf = Path(sys.executable).with_name("buf")
    command = [str(buf), "curl", "--protocol", "grpc", "--http2-prior-knowledge", *arguments, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=90)


def test_the_node_client_streams_an_answer(address: str, node_modules: Path, expected: str) -> None:
    result = run_node(node_modules, address, PROMPT, "--max-tokens", str(MAX_TOKENS))
    assert result.returncode == 0, result.stderr
    assert result.stdout == expected
    assert "FINISH_REASON_" in result.stderr


def test_the_node_client_ends_with_the_status_of_a_refused_request(address: str, node_modules: Path) -> None:
    result = run_node(node_modules, address, "")
    assert result.returncode == 1
    assert result.stderr.startswith("INVALID_ARGUMENT: ")


def test_the_node_client_is_at_most_sixty_lines_long() -> None:
    assert len((NODE_CLIENT / "client.js").read_text().splitlines()) <= 60


def test_buf_curl_lists_the_services_by_reflection(address: str) -> None:
    result = run_buf_curl(f"http://{address}", "--list-services")
    assert result.returncode == 0, result.stderr
    assert {"octavo.v1.InferenceService", "grpc.health.v1.Health"} <= set(result.stdout.split())


def test_buf_curl_streams_an_answer(address: str, expected: str) -> None:
    options = {"sampling": {"temperature": 0}, "stopping": {"maxTokens": MAX_TOKENS}}
    data = json.dumps({"prompt": {"text": PROMPT}, "options": options})
    result = run_buf_curl(f"http://{address}/octavo.v1.InferenceService/GenerateStream", "--data", data)
    assert result.returncode == 0, result.stderr
    events = read_json_values(result.stdout)
    assert "start" in events[0]
    assert "end" in events[-1]
    assert "".join(event.get("delta", {}).get("text", "") for event in events) == expected


def read_json_values(text: str) -> list[dict[str, dict[str, str]]]:
    """JSON objects that follow one another with blanks between them."""
    values, decoder, rest = [], json.JSONDecoder(), text.lstrip()
    while rest:
        value, end = decoder.raw_decode(rest)
        values.append(value)
        rest = rest[end:].lstrip()
    return values
