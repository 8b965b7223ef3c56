import os
import subprocess
import sys
from pathlib import Path

import pytest
from octavo_scheduler.config import read_config
from octavo_scheduler.core import Settings
from octavo_scheduler.errors import StartError
from octavo_scheduler.lifeline import watch_lifeline

from tests.patience import PATIENCE

MODEL = ["--model", "any"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--max-num-seqs", "0"], "max_num_seqs must be at least 1"),
        (["--max-step-tokens", "-1"], "max_step_tokens"),
        (["--max-chunk", "0"], "max_chunk"),
        (["--plans-in-flight", "3"], "plans_in_flight must be 1 or 2"),
        (["--max-tenant-share", "0"], r"max_tenant_share must lie in \(0, 1\]"),
        (["--max-tenant-queued-tokens", "0"], "max_tenant_queued_tokens must be at least 1"),
        (["--max-wait", "-1"], "must not be negative"),
        (["--tenant-weight", "a"], "--tenant-weight a is not TENANT=WEIGHT"),
        (["--tenant-weight", "a=0"], "the weight of tenant 'a' must be above 0"),
    ],
)
def test_settings_out_of_range_name_the_setting(flags: list[str], sentence: str) -> None:
    with pytest.raises(StartError, match=sentence):
        read_config([*MODEL, *flags])


def test_the_policy_is_read_from_the_flags() -> None:
    weights = ["--tenant-weight", "a=2", "--tenant-weight", "b=c=0.5"]
    caps = ["--max-queued-tokens", "9", "--max-tenant-queued-requests", "3", "--max-tenant-share", "0.5"]
    settings = read_config([*MODEL, "--policy", "fcfs", "--max-wait", "7", *weights, *caps]).settings
    assert settings == Settings(
        policy="fcfs",
        max_wait_seconds=7.0,
        tenant_weights={"a": 2.0, "b=c": 0.5},
        max_queued_tokens=9,
        max_tenant_queued_requests=3,
        max_tenant_share=0.5,
    )


@pytest.mark.parametrize(
    ("flag", "address", "sentence"),
    [
        ("--listen", "127.0.0.1", "has no port"),
        ("--listen", "127.0.0.1:", "has no port"),
        ("--listen", "[::1]", "has no port"),
        ("--listen", "127.0.0.1:http", "has a port that is not a number: http"),
        ("--listen", "127.0.0.1:-1", "has a port that is not a number: -1"),
        ("--listen", "127.0.0.1:*", r"has a port that is not a number: \*"),
        ("--listen", "127.0.0.1:65536", "has a port above 65535"),
        ("--listen", "127.0.0.1:" + "9" * 5000, "has a port above 65535"),
        ("--listen", "ipc:///a/b", "is neither HOST:PORT nor unix:PATH"),
        ("--listen", "unix:", "names no file"),
        ("--listen", "unix:/" + "x" * 107, "is longer than the 107 bytes"),
        ("--workers", "127.0.0.1:1", "is neither tcp://HOST:PORT nor ipc://PATH"),
        ("--workers", "inproc://x", "is neither tcp://HOST:PORT nor ipc://PATH"),
        ("--workers", "tcp://127.0.0.1", "has no port"),
        ("--workers", "tcp://127.0.0.1:x", "has a port that is not a number: x"),
        ("--workers", "tcp://127.0.0.1:99999", "has a port above 65535"),
        ("--workers", "ipc://", "names no file"),
        ("--workers", "ipc:///" + "x" * 107, "is longer than the 107 bytes"),
    ],
)
def test_an_address_that_is_none_says_what_is_wrong_with_it(flag: str, address: str, sentence: str) -> None:
    with pytest.raises(StartError, match=rf"^{flag} \S* {sentence}"):
        read_config([*MODEL, flag, address])


@pytest.mark.parametrize(
    ("flag", "address"),
    [
        *(("--listen", address) for address in ("127.0.0.1:0", "[::1]:65535", "unix:relative", "unix:///" + "x" * 106)),
        *(("--workers", address) for address in ("tcp://127.0.0.1:*", "tcp://[::1]:1", "ipc://relative", "ipc://@a")),
    ],
)
def test_addresses_of_every_kind_are_taken(flag: str, address: str) -> None:
    config = read_config([*MODEL, flag, address])
    assert address in (config.listen, config.workers)


def test_a_lifeline_that_cannot_be_read_is_a_start_error() -> None:
    reader, writer = os.pipe()
    with pytest.raises(StartError, match="is not the read end of a pipe"):
        watch_lifeline(writer)
    os.close(writer)
    os.close(reader)
    for bad in (reader, -1, 1 << 40):
        with pytest.raises(StartError, match=f"^--lifeline {bad} is not an open file descriptor"):
            watch_lifeline(bad)


def test_a_bad_lifeline_is_exit_code_2_and_one_sentence(tmp_path: Path) -> None:
    flags = ["--model", str(tmp_path), "--listen", f"unix:{tmp_path}/g", "--lifeline", "77"]
    ended = subprocess.run(
        [sys.executable, "-m", "octavo_scheduler", *flags], capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.returncode == 2
    assert ended.stderr == "octavo scheduler: --lifeline 77 is not an open file descriptor\n"
