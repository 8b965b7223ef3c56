"""buf curl, which knows nothing of Octavo but what reflection tells it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.foreign.conftest import MAX_TOKENS, PROMPT, Guarded, Note

BUF = str(Path(sys.executable).with_name("buf"))
GENERATE = {
    "prompt": {"text": PROMPT},
    "options": {"sampling": {"temperature": 0}, "stopping": {"maxTokens": MAX_TOKENS}},
}


def buf_curl(url: str, *arguments: str, protocol: str = "grpc") -> subprocess.CompletedProcess[str]:
    plain = ("--http2-prior-knowledge",) if url.startswith("http://") and protocol == "grpc" else ()
    command = [BUF, "curl", "--protocol", protocol, *plain, *arguments, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=90)


def version() -> str:
    return subprocess.run([BUF, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def text_of(stdout: str) -> str:
    """The whole answer of a stream, which begins and ends as it should."""
    events = read_json_values(stdout)
    assert "start" in events[0]
    assert "end" in events[-1]
    return "".join(event.get("delta", {}).get("text", "") for event in events)


def read_json_values(text: str) -> list[dict[str, Any]]:
    """JSON objects that follow one another with blanks between them."""
    values, decoder, rest = [], json.JSONDecoder(), text.lstrip()
    while rest:
        value, end = decoder.raw_decode(rest)
        values.append(value)
        rest = rest[end:].lstrip()
    return values


def test_the_services_are_listed_by_reflection(address: str, note: Note) -> None:
    result = buf_curl(f"http://{address}", "--list-services")
    assert result.returncode == 0, result.stderr
    services = {"octavo.v1.InferenceService", "grpc.health.v1.Health", "vllm.grpc.engine.VllmEngine"}
    assert services | {"inference.GRPCInferenceService"} <= set(result.stdout.split())
    note("buf curl", version(), "reflection")


def test_an_answer_is_streamed(address: str, expected: str, note: Note) -> None:
    url = f"http://{address}/octavo.v1.InferenceService/GenerateStream"
    result = buf_curl(url, "--data", json.dumps(GENERATE))
    assert result.returncode == 0, result.stderr
    assert text_of(result.stdout) == expected
    note("buf curl", version(), "text")


def test_a_refusal_says_why(address: str, note: Note) -> None:
    result = buf_curl(f"http://{address}/octavo.v1.InferenceService/Generate", "--data", "{}")
    assert result.returncode != 0
    assert json.loads(result.stderr)["code"] == "invalid_argument"
    assert "the prompt is empty" in json.loads(result.stderr)["message"]
    note("buf curl", version(), "error")


def test_tls_and_token_open_the_door(guarded: Guarded, expected: str, note: Note) -> None:
    client = guarded.keys / "client"
    url = f"https://{guarded.address.replace('127.0.0.1', 'localhost')}/octavo.v1.InferenceService/GenerateStream"
    bearer = f"authorization: Bearer {(client / 'token').read_text().strip()}"
    ask = ("--cacert", str(client / "ca.crt"), "--data", json.dumps(GENERATE))
    result = buf_curl(url, *ask, "--header", bearer, "--reflect-header", bearer)
    assert result.returncode == 0, result.stderr
    assert text_of(result.stdout) == expected
    assert buf_curl(url, *ask, "--schema", "protos").returncode != 0
    note("buf curl", version(), "TLS and token")
