"""aiperf, a load generator for OpenAI's HTTP API, through smg."""

import json
from pathlib import Path

import pytest

from tests.foreign.conftest import Note, Server
from tests.foreign.environments import clean_environment, python_environment, run
from tests.foreign.test_openai import OPENAI, SMG, gateway

pytestmark = pytest.mark.on_demand

VERSION = "0.13.0"
REQUESTS, TOKENS = 24, 16


def test_it_measures_as_many_requests_and_tokens_as_the_scheduler_counts(
    server: Server, tiny_model: Path, tmp_path: Path, note: Note
) -> None:
    smg = python_environment("smg", SMG, OPENAI)
    aiperf = python_environment("aiperf", f"aiperf=={VERSION}", by_uv=True) / "aiperf"
    before = server.status()
    with gateway(smg, [server.address], tmp_path / "log") as url:
        flags = {
            "model": before.model,
            "url": url.removesuffix("/v1"),
            "endpoint-type": "chat",
            "tokenizer": tiny_model,
            "concurrency": 4,
            "request-count": REQUESTS,
            "isl": 40,
            "osl": TOKENS,
            "extra-inputs": "ignore_eos:true",
            "ui": "none",
            "artifact-dir": tmp_path,
        }
        words = [f"--{flag}={value}" for flag, value in flags.items()]
        run([aiperf, "profile", "--streaming", "--use-server-token-count", *words], env=clean_environment())
    found = json.loads((tmp_path / "profile_export_aiperf.json").read_text())
    after = server.status()
    assert found["request_count"]["avg"] == REQUESTS == after.counters.ended - before.counters.ended
    assert not found["error_summary"]
    generated = after.counters.generated_tokens - before.counters.generated_tokens
    assert found["total_output_tokens"]["avg"] == generated == REQUESTS * TOKENS
    assert found["time_to_first_token"]["count"] == found["inter_token_latency"]["count"] == REQUESTS
    note("aiperf through smg", VERSION, "load")
