"""A scheduler and three workers on four hosts, with keys as a deployment has them."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from octavo_scheduler.keys import make_keys

from tests.deploy import caller
from tests.deploy.hosts import Host, can_make_hosts, hosts
from tests.doubles.tiny_model import make_tiny_model
from tests.patience import PATIENCE
from tests.processes import module, running

pytestmark = pytest.mark.skipif(not can_make_hosts(), reason="network namespaces take root and iproute2")
POOL = ("--dtype=float32", "--pages=800", "--threads=1")
STREAMS = 12


def scheduler(model: Path, keys: Path, host: Host) -> list[str]:
    own = keys / "scheduler"
    return host.command(
        module(
            "octavo_scheduler",
            *(f"--model={model}", f"--listen={host.address}:50051", f"--workers=tcp://{host.address}:5555"),
            *(f"--tls-cert={own}/tls.crt", f"--tls-key={own}/tls.key", f"--token-file={own}/token"),
            f"--admin-token-file={own}/admin-token",
            *(f"--curve-key={own}/scheduler.key_secret", f"--curve-allow={own}/allow"),
        )
    )


def worker(model: Path, keys: Path, host: Host, at: Host) -> list[str]:
    own = keys / "worker"
    return host.command(
        module(
            "octavo_worker",
            *(f"--model={model}", f"--scheduler=tcp://{at.address}:5555", f"--worker-id={host.namespace}", *POOL),
            *(f"--curve-key={own}/worker.key_secret", f"--curve-server-key={own}/scheduler.key"),
        )
    )


def call(host: Host, at: Host, keys: Path, while_under_way: Callable[[], None]) -> list[list[int]]:
    """All answers to a client on `host`."""
    words = [sys.executable, caller.__file__, f"{at.address}:50051", str(keys / "client"), str(STREAMS)]
    with subprocess.Popen(host.command(words), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "under way\n"
            while_under_way()
            answers: list[list[int]] = json.loads(process.communicate(timeout=2 * PATIENCE)[0])
            return answers
        finally:
            process.kill()


def num_running(host: Host, at: Host, keys: Path) -> int:
    """Sequences on the worker of a host, as the scheduler says."""
    own = keys / "admin"
    server = ("--address", f"{at.address}:50051", "--ca-file", f"{own}/ca.crt", "--token-file", f"{own}/token")
    command = host.command(module("octavo_client", "status", "--json", *server))
    status = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    (worker,) = (each for each in status["workers"] if each["worker_id"] == host.namespace)
    return int(worker["running"])


def test_a_host_that_is_cut_off_costs_no_token(tmp_path: Path) -> None:
    model, keys = make_tiny_model(tmp_path / "tiny"), tmp_path / "keys"
    with hosts(4) as (first, *others), ExitStack() as stack:
        make_keys(keys, [first.address])
        stack.enter_context(running(scheduler(model, keys, first), ready="serving"))
        for host in others:
            stack.enter_context(running(worker(model, keys, host, first), ready="joined"))
        *_, lost, last = others
        before = call(last, first, keys, lambda: None)

        def cut() -> None:
            assert num_running(lost, first, keys) > 0
            lost.unplug()

        after = call(last, first, keys, cut)
    assert [len(tokens) for tokens in before] == [caller.PARAMS.max_tokens] * STREAMS
    assert after == before
