"""Recorded plans give the same tokens again, and a log that is not what was executed is noticed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.record import Recorder

from benchmarks.plans import read_recording, replay
from tests.doubles.table_top import TableTop
from tests.doubles.tiny_model import make_tiny_model
from tests.equality.engine import RunnerWorker

PROMPTS = [[5, 6, 7, 8] * 3, [9, 10, 11], [12] * 20, [13, 14]]
LENGTHS = [20, 24, 12, 22]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> RunnerWorker:
    model = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    return RunnerWorker(model, page_size=4, pages=14, host_pages=14, max_slots=4, max_step_tokens=16)


Served = Callable[[], tuple[Path, TableTop]]


@pytest.fixture
def served(worker: RunnerWorker, tmp_path: Path) -> Served:
    """A recorded run, in which pages are so few that sequences are preempted."""

    def run() -> tuple[Path, TableTop]:
        path = tmp_path / "log"
        table = TableTop()
        table.core = recorder = Recorder(Settings(prefix_cache=False, max_step_tokens=16), path, has_tokens=True)
        table.join("w", worker)
        for number, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
            table.submit(str(number), prompt, length, temperature=0.9, seed=number)
        table.run()
        recorder.close()
        return path, table

    return run


def test_a_recording_holds_every_plan_and_every_answer(served: Served) -> None:
    path, table = served()
    recording = read_recording(path)
    assert len(recording.plans) == len(recording.tokens) == len(table.plans)
    assert recording.ids == [table.tokens[str(number)] for number in range(len(PROMPTS))]
    assert max(finished.preemptions for finished in table.finished.values()) > 0


def test_replaying_a_recording_samples_the_same_tokens(worker: RunnerWorker, served: Served) -> None:
    recording = read_recording(served()[0])
    for _ in range(2):
        replayed = replay(worker.runner, recording)
        assert (replayed.steps, replayed.different_steps) == (len(recording.plans), 0)


def test_a_step_that_samples_something_else_is_counted(worker: RunnerWorker, served: Served) -> None:
    recording = read_recording(served()[0])
    number = next(n for n, tokens in enumerate(recording.tokens) if tokens)
    other = [
        tuple(token + 1 for token in tokens) if n == number else tokens for n, tokens in enumerate(recording.tokens)
    ]
    assert replay(worker.runner, replace(recording, tokens=other)).different_steps == 1


def test_a_plan_whose_result_never_came_is_left_out(worker: RunnerWorker, tmp_path: Path) -> None:
    table = TableTop()
    table.core = recorder = Recorder(Settings(), tmp_path / "log", has_tokens=True)
    table.join("w", worker)
    table.submit("a", [5, 6, 7], 4)
    assert table.plan("w")
    assert table.deliver("w")
    assert table.plan("w")
    recorder.close()
    recording = read_recording(tmp_path / "log")
    assert len(recording.plans) == len(recording.tokens) == 1
