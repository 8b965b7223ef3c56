"""smg in front of two schedulers, of which one is killed."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.foreign.conftest import Note, Server
from tests.foreign.environments import HERE, clean_environment, python_environment
from tests.foreign.test_languages import until_idle
from tests.foreign.test_openai import CLIENT, OPENAI, SMG, gateway
from tests.patience import PATIENCE
from tests.processes import module, running

pytestmark = pytest.mark.on_demand

STREAMS, ANSWERS = 4, 12


@contextmanager
def mortal(model: Path, folder: Path, name: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A scheduler that may be killed, and its worker, which waits for another one then."""
    steps = f"ipc://{folder}/{name}"
    words = module("octavo_scheduler", f"--model={model}", "--listen=127.0.0.1:0", f"--workers={steps}")
    worker = module("octavo_worker", f"--model={model}", f"--scheduler={steps}", "--device=cpu", "--pages=1000")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as scheduler:
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().partition(" on ")[2].partition(",")[0]
        try:
            with running(worker, ready="joined"):
                yield address, scheduler
        finally:
            scheduler.kill()


def test_the_other_answers_what_comes_and_streams_of_the_killed_one_end_with_an_error(
    tiny_model: Path, tmp_path: Path, note: Note
) -> None:
    programs = python_environment("smg", SMG, OPENAI)
    with (
        mortal(tiny_model, tmp_path, "one") as (first, victim),
        mortal(tiny_model, tmp_path, "two") as (second, _),
        gateway(programs, [first, second], tmp_path / "log", policy="round_robin") as url,
    ):
        script: list[str | Path] = [programs / "python", HERE / "openai" / "lose.py", url, Server(first).status().model]
        pipe, clean = subprocess.PIPE, clean_environment()
        with subprocess.Popen(
            [*script, str(STREAMS), str(ANSWERS)], stdin=pipe, stdout=pipe, text=True, env=clean
        ) as asking:
            assert asking.stdout is not None
            assert asking.stdout.readline() == "begun\n"
            lost, kept = (Server(each).status().live_requests for each in (first, second))
            victim.kill()
            words, _ = asking.communicate("\n", timeout=PATIENCE)
        until_idle(Server(second))
    told = json.loads(words)
    assert (lost, kept) == (STREAMS // 2, STREAMS // 2)
    assert (told["streams"].count("APIError"), told["streams"].count("length")) == (lost, kept)
    assert told["answers"] == [4] * ANSWERS
    note(*CLIENT, "failover")
