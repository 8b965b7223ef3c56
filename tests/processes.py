"""Real processes for tests: started, waited for by the line they print, ended with SIGTERM."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.patience import PATIENCE


@contextmanager
def launched(command: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A process that has to end by itself within the block, or soon after it; killed where it does not."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
            process.wait(PATIENCE)
        finally:
            process.kill()


@contextmanager
def running(command: Sequence[str], *, ready: str, env: Mapping[str, str] | None = None) -> Iterator[re.Match[str]]:
    """Run a command until its output matches `ready`, yield the match, and check at the end that it stops in order."""
    with tempfile.TemporaryFile("w+") as log:
        environment = {**os.environ, **(env or {})}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            yield _match(process, ready, log)
            process.terminate()
            assert process.wait(PATIENCE) == 0, _words_of(log)
        finally:
            process.kill()
            process.communicate()


def _match(process: subprocess.Popen[str], ready: str, log: TextIO) -> re.Match[str]:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if match := re.search(ready, line):
            return match
    raise AssertionError(f"no line like {ready!r} came:\n{seen}{_words_of(log)}")


def _words_of(log: TextIO) -> str:
    log.seek(0)
    return log.read()


def wait_until_serving(channel: grpc.Channel, metadata: Sequence[tuple[str, str]] = ()) -> None:
    """Return once a worker has joined, so that requests are answered."""
    request = health_pb2.HealthCheckRequest(service="octavo.v1.InferenceService")
    for answer in health_pb2_grpc.HealthStub(channel).Watch(request, timeout=PATIENCE, metadata=metadata):
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            return


@contextmanager
def serving(
    model: Path, *, scheduler: Sequence[str] = (), worker: Sequence[str] = ("--device=cpu", "--pages=256")
) -> Iterator[str]:
    """Serve a model with one scheduler and one worker on this machine; yields HOST:PORT of the gRPC service."""
    with tempfile.TemporaryDirectory() as folder:
        steps = f"ipc://{folder}/steps"
        scheduler = module(
            "octavo_scheduler", f"--model={model}", "--listen=127.0.0.1:0", f"--workers={steps}", *scheduler
        )
        worker = module("octavo_worker", f"--model={model}", f"--scheduler={steps}", *worker)
        with running(scheduler, ready=r"serving .* on ([\d.]+:\d+)") as match, running(worker, ready="joined"):
            with grpc.insecure_channel(match[1]) as channel:
                wait_until_serving(channel)
            yield match[1]


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules with this Python."""
    return [sys.executable, "-m", name, *arguments]
