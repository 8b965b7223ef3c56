"""The conversation with an engine, both sides of it, and what becomes of engines that fail."""

import os
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.peers import engine
from benchmarks.peers.contestants import Contestant
from benchmarks.peers.engine import Engine, EngineFailed, run_tool
from benchmarks.peers.measure import measure
from benchmarks.store import PROBLEM
from benchmarks.workload import Work, workload

PREAMBLE = """
import os, sys, time
from benchmarks.peers.runners.protocol import serve, take_stdout, timed
answers = take_stdout()
"""
WORK = [Work([1, 2, 3], 2), Work([4], 3)]


def program(tmp_path: Path, code: str) -> list[str]:
    path = tmp_path / "engine.py"
    path.write_text(PREAMBLE + textwrap.dedent(code))
    return [sys.executable, str(path)]


COUNTING = """
    def generate(work):
        print("chatter on stdout")
        return [[len(prompt)] * n for prompt, n in work]
    serve(answers, {"engine": "counting"}, timed(generate))
"""


def test_an_engine_says_what_it_is_and_answers_whatever_else_it_prints(tmp_path: Path) -> None:
    with Engine(program(tmp_path, COUNTING), tmp_path / "log") as running:
        assert running.about == {"engine": "counting"}
        assert running.ready_seconds > 0
        for _ in range(2):
            seconds, ids = running.run(WORK)
            assert ids == [[3, 3], [1, 1, 1]]
            assert seconds > 0
    assert (tmp_path / "log").read_text().splitlines() == ["chatter on stdout"] * 2


def test_an_engine_that_ends_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"^ValueError: no such model$"):
        Engine(program(tmp_path, 'raise ValueError("no such model")'), tmp_path / "log")


def test_an_engine_that_ends_in_the_middle_is_quoted(tmp_path: Path) -> None:
    code = 'serve(answers, {}, timed(lambda work: sys.exit("out of memory")))'
    with Engine(program(tmp_path, code), tmp_path / "log") as running:
        for _ in range(2):
            with pytest.raises(EngineFailed, match=r"^out of memory$"):
                running.run(WORK)


def test_answers_of_another_length_are_no_answers(tmp_path: Path) -> None:
    command = program(tmp_path, "serve(answers, {}, timed(lambda work: [[1]] * len(work)))")
    with Engine(command, tmp_path / "log") as running, pytest.raises(EngineFailed, match="other lengths"):
        running.run(WORK)


def test_an_engine_that_hangs_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MOST_SECONDS", 5.0)
    monkeypatch.setattr(engine, "SECONDS_TO_END", 0.1)
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    code = f"""
        if not os.fork():
            held = open({str(pipe)!r}, "w")
            time.sleep(600)
        serve(answers, {{}}, timed(lambda work: time.sleep(600)))
    """
    with Engine(program(tmp_path, code), tmp_path / "log") as running:
        alive = os.open(pipe, os.O_RDONLY)
        with pytest.raises(EngineFailed, match="did not answer within 5 seconds"):
            running.run(WORK)
    assert os.read(alive, 1) == b"", "the child that held the other end is gone"
    os.close(alive)


def test_a_tool_gives_the_figures_of_its_last_line(tmp_path: Path) -> None:
    code = """
        print("chatter")
        print("warming up", file=answers)
        print('{"single_tok_s": 12.5}', file=answers)
    """
    assert run_tool(program(tmp_path, code), tmp_path / "log") == {"single_tok_s": 12.5}


def test_a_tool_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"^wrong file$"):
        run_tool(program(tmp_path, 'sys.exit("wrong file")'), tmp_path / "log")


def test_a_contestant_is_measured_on_the_same_work_as_all_others(tmp_path: Path) -> None:
    command = program(tmp_path, COUNTING)
    entry = measure(Contestant("counting", "peer", lambda: command), tmp_path / "log", number=0, repeats=2)
    assert set(entry["samples"]) == {"w_tok_s", "single_tok_s", "prefill_tok_s"}
    assert all(len(samples) == 2 for samples in entry["samples"].values())
    assert len(entry["answers"]) == len(workload())


def test_what_goes_wrong_with_a_contestant_is_written_down(tmp_path: Path) -> None:
    command = program(tmp_path, 'sys.exit("no such kernels")')
    entry = measure(Contestant("broken", "peer", lambda: command), tmp_path / "log", number=0, repeats=1)
    assert entry == {PROBLEM: "no such kernels"}
