"""The openai package, by way of smg: a gateway that turns OpenAI's HTTP API into vllm.grpc.engine."""

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from octavo.v1 import inference_pb2, inference_pb2_grpc

from tests.foreign.conftest import Note, Server
from tests.foreign.environments import HERE, clean_environment, python_environment, run
from tests.foreign.test_languages import until_idle
from tests.patience import PATIENCE

SMG, OPENAI = "smg==1.13.0", "openai==3.57.0"
CLIENT = "openai through smg", " / ".join(each.partition("==")[2] for each in (OPENAI, SMG))


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def gateway(programs: Path, addresses: Sequence[str], log: Path, *, policy: str = "cache_aware") -> Iterator[str]:
    """smg in front of engines; yields where its HTTP is, once it has the model."""
    port, metrics = free_ports(2)
    command = [str(programs / "smg"), "launch", "--host=127.0.0.1", f"--port={port}", f"--policy={policy}"]
    command += ["--prometheus-host=127.0.0.1", f"--prometheus-port={metrics}"]
    command += ["--worker-urls", *(f"grpc://{address}" for address in addresses)]
    environment = {**clean_environment(), "HF_HUB_OFFLINE": "1"}
    with log.open("w") as words, subprocess.Popen(command, stdout=words, stderr=words, env=environment) as process:
        try:
            until_served(f"http://127.0.0.1:{port}/v1/models", process, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(PATIENCE)


def until_served(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(300):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if json.load(answer)["data"] and "Successfully loaded tokenizer" in log.read_text():
                    return
        except OSError:
            assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def cancelled_before(real_address: str) -> int:
    return Server(real_address).status().counters.cancelled


@pytest.fixture(scope="module")
def asked(real_address: str, cancelled_before: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the openai package got, all of it in one run."""
    programs = python_environment("smg", SMG, OPENAI)
    with gateway(programs, [real_address], tmp_path_factory.mktemp("smg") / "log") as url:
        words = run([programs / "python", HERE / "openai" / "ask.py", url], env=clean_environment())
    answers: dict[str, Any] = json.loads(words)
    return answers


@pytest.fixture(scope="module")
def own(real_address: str) -> inference_pb2.ChatResponse:
    """The same chat by Octavo's own stubs."""
    request = inference_pb2.ChatRequest()
    request.messages.add(role="user", content="What is the capital of France?")
    request.options.sampling.temperature = 0
    request.options.stopping.max_tokens = 24
    request.options.output.logprobs = 3
    with grpc.insecure_channel(real_address) as channel:
        stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        answer: inference_pb2.ChatResponse = stub.Chat(request, timeout=PATIENCE)
    return answer


def test_a_chat_is_answered_as_octavo_answers_it(
    asked: dict[str, Any], own: inference_pb2.ChatResponse, note: Note
) -> None:
    """Gateway and scheduler apply the same template and the same tokenizer, or the counts would differ."""
    assert asked["models"] == ["smollm2"]
    chat, usage = asked["chat"], own.usage
    assert "Paris" in chat["text"]
    assert chat["text"] == own.completions[0].text
    assert chat["reason"] == "stop"
    assert chat["usage"] == [
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
    ]
    note(*CLIENT, "text")


def test_a_streamed_chat_is_the_same_in_pieces_and_its_usage_comes_last(asked: dict[str, Any], note: Note) -> None:
    streamed, whole = asked["chat_stream"], asked["chat"]
    assert {name: streamed[name] for name in ("text", "reason", "usage")} == whole
    assert streamed["pieces"] > 1
    note(*CLIENT, "usage")


def test_a_completion_ends_before_its_stop_text_whole_and_streamed(asked: dict[str, Any]) -> None:
    assert asked["completion"]["text"] == asked["completion_stream"]["text"] == " Paris"
    assert asked["completion"]["reason"] == "stop"


def test_several_answers_differ_and_come_in_order(asked: dict[str, Any]) -> None:
    assert len(set(asked["several"]["texts"])) == 3


def test_log_probabilities_are_octavos_whole_and_streamed(
    asked: dict[str, Any], own: inference_pb2.ChatResponse, note: Note
) -> None:
    """smg leaves out the end token, which has no text."""
    told = asked["chat_logprobs"]
    assert told["whole"] == told["streamed"]
    assert "".join(token for token, _, _ in told["whole"]) == told["text"] == asked["chat"]["text"]
    *positions, end = own.completions[0].logprobs
    assert end.chosen.token_id == own.completions[0].finish.token_id
    for (token, value, best), position in zip(told["whole"], positions, strict=True):
        assert value == pytest.approx(position.chosen.logprob, abs=1e-4)
        assert [each for _, each in best] == pytest.approx([each.logprob for each in position.top], abs=1e-4)
        assert best[0][0] == token
    note(*CLIENT, "logprobs")


def test_refusals_are_the_packages_own_errors_with_octavos_sentence(asked: dict[str, Any], note: Note) -> None:
    assert asked["refusals"]["another model"]["kind"] == "NotFoundError"
    too_long = asked["refusals"]["too long"]
    assert (too_long["kind"], too_long["status"]) == ("BadRequestError", 400)
    assert "max_tokens is 1000000" in too_long["message"]
    note(*CLIENT, "error")


def test_clients_that_leave_a_stream_or_run_out_of_time_free_their_pages(
    asked: dict[str, Any], real_address: str, cancelled_before: int, note: Note
) -> None:
    assert asked["leave"]["pieces"] == 3
    assert asked["late"]["kind"] == "APITimeoutError"
    assert until_idle(Server(real_address)) == cancelled_before + 2
    note(*CLIENT, "deadline")
    note(*CLIENT, "cancel")
